/* leftover.h - temporary files and folders whose process was killed: how the next run recognises and removes them.
 *
 * The name of everything temporary has a mark: "<prefix><mark>..." with mark "<host>-<pid>-<start>".
 *
 *     host    hash of boot, host name and pid namespace: the scope in which a pid is valid
 *     pid     the process that created it
 *     start   start time of the process, in ticks since boot, as pids are reused
 *
 * For a mark of this host, the system says whether the process is alive. For a mark of another host, another container,
 * or before a reboot, it cannot: the process may be alive and writing to a shared file system, so the entry counts as
 * left over when nothing in it has changed for a day. */
#ifndef PS_BASE_LEFTOVER_H
#define PS_BASE_LEFTOVER_H

#include <stdbool.h>

#define PS_LEFTOVER_MARK_MAX 64
#define PS_LEFTOVER_TEMPORARY ".tmp-" /* files and folders to be renamed: "<path>.tmp-<mark>-<n>" */
#define PS_LEFTOVER_IDLE_S (24 * 3600)

/* The mark of this process. Returns mark. */
const char *ps_leftover_mark(char mark[PS_LEFTOVER_MARK_MAX]);

/* Whether the process of this mark, another one of this host, has ended; zombies count as ended. False when unknown:
 * for a mark of another host or of this process, and for text that is no mark. */
bool ps_leftover_process_has_ended(const char *mark);

/* The text after the mark in a name "<prefix><mark>" or "<prefix><mark>-..."; NULL for all other names. */
const char *ps_leftover_suffix(const char *name, const char *prefix);

/* Whether the entry `name` of an open folder is such a name, and its process has ended or, with own_too, is this
 * process. False when unknown. */
bool ps_leftover_is_gone(int folder, const char *name, const char *prefix, bool own_too);

/* Remove entries with such names whose process has ended: files, links, and folders of files; with own_too also those
 * that this process could not remove before. An entry that cannot be removed stays for the next attempt. Allocates no
 * memory. */
void ps_leftovers_remove(const char *folder, const char *prefix, bool own_too);

/* The same for temporary entries of `path`: "<name of path><suffix><mark>..." in the same folder. */
void ps_leftovers_remove_siblings(const char *path, const char *suffix);

#endif
