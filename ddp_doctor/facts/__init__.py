"""Kinds of facts, one module per source of evidence. Both probes (live) and readers (saved) yield these same kinds."""
