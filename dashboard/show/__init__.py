"""What a page shows, made safe and readable: numbers and times, bodies of messages, small pictures."""
