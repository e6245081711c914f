"""What runs inside a rank of the job itself, and so costs next to nothing and leaves nothing behind."""
