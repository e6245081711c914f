"""`watch`, around a command and inside a script: who waits for initialisation, and for how long it may take."""
