#include "train/settings/tier_options.h"

#include <stdlib.h>
#include <string.h>

const char *ps_tier_options_disk_folders(const ps_options *o)
{
    const char *tmp = getenv("TMPDIR");
    return o->memory_disk_path[0] ? o->memory_disk_path : tmp != NULL && tmp[0] ? tmp : "/tmp";
}

ps_status ps_tier_options_read(const ps_options *o, ps_tier_options *out)
{
    static const ps_disk_backend backends[] = {[PS_CONFIG_DISK_BACKEND_AUTO] = PS_DISK_AUTO,
                                               [PS_CONFIG_DISK_BACKEND_IO_URING] = PS_DISK_URING,
                                               [PS_CONFIG_DISK_BACKEND_THREADS] = PS_DISK_THREADS};
    const char *text = ps_tier_options_disk_folders(o);
    ps_disk_folders folders;
    PS_TRY(ps_disk_folders_read(text, &folders));
    out->store = ps_store_options_read(o);
    out->disk_backend = backends[o->memory_disk_backend];
    strcpy(out->disk_folders, text);
    return PS_OK;
}
