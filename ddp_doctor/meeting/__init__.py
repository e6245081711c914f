"""Ranks of one job find each other before any process group exists, and hear one verdict, all of them the same.

Whoever binds the job's name first hosts: it collects what each rank says of itself, has it judged, and hands the
verdict to everybody. On one host the name is an abstract unix socket made from user and launcher, so that ranks that
disagree about MASTER_ADDR or MASTER_PORT meet all the same; hosts meet on a TCP port made from the job's id, where the
host of each machine stands for its ranks, or in a shared folder where they have no way to each other. A host that
ends, or falls silent, is replaced by the next to bind.
"""
