/* machines.h - the machines that are known by name: the files of examples/hardware, which are part of the program. */
#ifndef PS_CONFIG_MACHINES_H
#define PS_CONFIG_MACHINES_H

/* "laptop": its description (doc/hardware.md) as JSON text; NULL when there is no such name. */
const char *ps_machine_description(const char *name);

/* "a100-40gb-x8, h100-128gb, ... or a file", for messages. */
extern const char ps_machine_names[];

#endif
