"""Adapters of TGI's Messages API and of /generate."""
