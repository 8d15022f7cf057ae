/* plugin_file.h - finds plug-ins of this library, libpatrickstar_NAME.so.
 *
 * They are searched in the folders of the library and of the program, and in fixed folders relative to these, as built
 * and as installed. No other folders are searched, as a plug-in is executed. Environment:
 *
 *     PATRICKSTAR_PLUGIN_PATH   the folder to search instead */
#ifndef PS_BASE_PLUGIN_FILE_H
#define PS_BASE_PLUGIN_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* The path of the first libpatrickstar_<name>.so; false: there is none, or its path does not fit. */
bool ps_plugin_find(const char *name, char *path, size_t bytes);
/* The folders that are searched, "/usr/bin, /usr/lib/patrickstar"; cut at `bytes`. */
void ps_plugin_places(char *out, size_t bytes);

#endif
