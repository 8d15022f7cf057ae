/* plugin_file.h - where parts of this library lie that are loaded while the program runs: libpatrickstar_NAME.so.
 *
 * They are looked for in the folder of the library, of the program, and near them: as built, and as installed. Only
 * there, as what is found is executed. Environment:
 *
 *     PATRICKSTAR_PLUGIN_PATH   the folder to look in instead */
#ifndef PS_BASE_PLUGIN_FILE_H
#define PS_BASE_PLUGIN_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* The path of the first libpatrickstar_<name>.so; false: there is none, or its path is longer. */
bool ps_plugin_find(const char *name, char *path, size_t bytes);
/* Where it is looked for, "/usr/bin, /usr/lib/patrickstar"; cut off at bytes. */
void ps_plugin_places(char *out, size_t bytes);

#endif
