"""kill -9 at random moments, then go on: nothing that was measured may be lost, no file half written."""
