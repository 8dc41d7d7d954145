"""Audit of traffic logs: lines to exchanges, exchanges to tallies. Logs are streamed; tallies add up in any order."""
