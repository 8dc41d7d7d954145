"""Commands about the format itself: `render`, `parse`, `golden`, `teleprompter`."""
