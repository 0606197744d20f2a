"""A whole training step in plain floats, by loops over stages, layers and micro-batches: an oracle of the product.

It shares no code with what it judges.  Of a design it reads data alone: fields of the chip, cluster, stack, technology,
plan and training, and a network as a list of blocks (sizes of operators, parameters, bytes kept).  README.md says in
which order to read the modules, and which conventions are taken over without proof.
"""
