"""Faults of networks and launches between hosts, and what has to be said about each: the table was written before it ran.

| fault | who says it | id | hosts named | direction or word in the summary |
|---|---|---|---|---|
| MASTER_PORT dropped on node0 | the report | DDP302 | node0, node1 | MASTER_PORT of node0 is closed to node1 |
| MASTER_PORT rejected (tcp reset) on node0 | the report | DDP302 | node0, node1 | the same |
| ephemeral ports dropped on node1 | the report | DDP302 | node0, node1 | from node0 to node1 |
| ephemeral ports dropped on node0 | the report | DDP302 | node0, node1 | from node1 to node0 |
| ephemeral ports of node2 of four dropped | the report, once | DDP302 | node2 | to node2 |
| ephemeral ports out of node2 of four dropped | the report, once | DDP302 | node2 | from node2 |
| nothing new comes in on node1 | the report | DDP302 | node0, node1 | from node0 to node1 |
| all but MASTER_PORT and ssh dropped on node0 | node1's line | DDP302 | node1 | node0's address |
| all of node1 dropped on node0 | node1's line | DDP302 | node1 | node0's address |
| node1 behind NAT | the report | DDP302 | node1 | address translation |
| Gloo of node1 told a decoy (docker0, br-, virbr0, tailscale0, 169.254 usb0) | the report | DDP301 | node1 | the decoy |
| node1's name resolves to a decoy's address | the report | DDP301 | node1 | the decoy |
| GLOO_SOCKET_IFNAME=docker0, the same address on both | the report, once | DDP301 | node0, node1 | docker0 |
| decoys everywhere, nothing set | nobody | - | | |
| node1's name is 127.0.1.1 | the report | DDP202 | node1 | 127.0.1.1 |
| all hosts IPv6 only | nobody | - | | |
| node1 IPv6 only, MASTER_ADDR IPv4 | node1's line | DDP303 | node1 | |
| node1 IPv4 only, Gloo of node0 on IPv6 | the report | DDP303 | node0, node1 | fd07::1 |
| MASTER_ADDR=localhost everywhere | each host's | DDP111 | that host | localhost |
| nameserver out of reach on node1, MASTER_ADDR a name | node1's line | DDP201 | node1 | |
| nameserver out of reach on node1, MASTER_ADDR an address | the report | DDP201 | node1 | |
| ranks of node1 stopped after they came | the report | DDP608 | node1 | |
| healthy, two and four hosts | nobody | - | | |
"""
