"""The part of mitmproxy 12 that harmony_proxy uses, for type checks on a Python that cannot install it.

`proxy/tests/mitmproxy_addon/test_stubs.py` compares these stubs with the library.
"""
