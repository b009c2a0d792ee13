"""What users own: chats, messages, runs, and the ways to reach them."""
