"""Report to text; a renderer never decides."""
