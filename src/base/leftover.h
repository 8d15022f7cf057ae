/* leftover.h - temporary files and folders whose makers were killed: how they are known, and removed by the next run.
 *
 * The name of everything temporary has a mark: "<prefix><mark>..." with mark "<host>-<pid>-<start>".
 *
 *     host    hash of boot, host name and pid namespace: where the number of a process means something
 *     pid     the maker
 *     start   when it was started, in ticks since boot: another process may get its number later
 *
 * A maker on this host is asked for. One of another host, another container, or before a reboot, cannot be: what it
 * left counts as left when nothing in it has changed for a day, for its maker may be alive and at work on a file system
 * that both see. */
#ifndef PS_BASE_LEFTOVER_H
#define PS_BASE_LEFTOVER_H

#include <stdbool.h>

#define PS_LEFTOVER_MARK_MAX 64
#define PS_LEFTOVER_TEMPORARY ".tmp-" /* files and folders to be renamed: "<path>.tmp-<mark>-<n>" */
#define PS_LEFTOVER_IDLE_S (24 * 3600)

/* Of this process. Returns mark. */
const char *ps_leftover_mark(char mark[PS_LEFTOVER_MARK_MAX]);

/* Has the process of this mark, another one of this host, ended? Also where nobody has asked for its status yet. When
 * in doubt, no: a mark of another host, of this process, or none. */
bool ps_leftover_process_has_ended(const char *mark);

/* What follows the mark in a name that is "<prefix><mark>" and then "-" or nothing; NULL for all other names. */
const char *ps_leftover_rest(const char *name, const char *prefix);

/* Is the entry `name` of an open folder such a name, and its maker gone, or with own_too this process? When in doubt,
 * no. */
bool ps_leftover_is_gone(int folder, const char *name, const char *prefix, bool own_too);

/* Remove what makers that are gone have left under such names: files, links, and folders of files; with own_too what
 * this process could not remove before, too. What cannot be removed stays, and is tried again next time. Needs no
 * memory. */
void ps_leftovers_remove(const char *folder, const char *prefix, bool own_too);

/* The same for what is left of writing `path`: entries "<name of path><suffix><mark>..." beside it. */
void ps_leftovers_remove_beside(const char *path, const char *suffix);

#endif
