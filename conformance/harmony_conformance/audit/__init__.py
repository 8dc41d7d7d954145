"""Logs: lines to exchanges, exchanges to tallies. Reading is streamed; scanning is pure; tallies add up in any order."""
