/* machines.h - machines known by name: the files of examples/hardware, embedded in the program. */
#ifndef PS_CONFIG_MACHINES_H
#define PS_CONFIG_MACHINES_H

/* The description (doc/hardware.md) of a machine such as "laptop" as JSON text; NULL when there is no such name. */
const char *ps_machine_description(const char *name);

/* "a100-40gb-x8, h100-128gb, ... or a file", for messages. */
extern const char ps_machine_names[];

#endif
