"""Record one exchange as its bytes pass by, and rebuild it for judging."""
