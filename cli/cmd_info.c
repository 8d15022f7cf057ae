/* cmd_info.c - pstar info: the machine, and what this build can use of it. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#include "base/bytes.h"
#include "base/machine.h"
#include "cli.h"
#include "device/disk.h"
#include "kernel/kernel.h"

static const char *disk_folder(void)
{
    const char *tmp = getenv("TMPDIR");
    return tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp";
}

static void show_disk(void)
{
    char free_text[PS_BYTES_TEXT_MAX] = "unknown";
    struct statvfs fs;
    if (statvfs(disk_folder(), &fs) == 0) (void)ps_bytes_format((int64_t)fs.f_bavail * (int64_t)fs.f_frsize, free_text);
    ps_disk *d = NULL;
    if (ps_disk_open(disk_folder(), PS_DISK_AUTO, 4, &d) != PS_OK) {
        printf("disk tier           %s: %s\n", disk_folder(), ps_last_error());
        return;
    }
    const ps_disk_stats s = ps_disk_get_stats(d);
    printf("disk tier           %s: %s, %s, %s free\n", disk_folder(), s.backend,
           s.direct ? "O_DIRECT" : "through the page cache", free_text);
    ps_disk_close(d);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    if (key == ARGP_KEY_ARG) argp_usage(state);
    return ARGP_ERR_UNKNOWN;
}

int cmd_info(int argc, char **argv)
{
    static const struct argp argp = {.parser = parse,
                                     .doc = "Show the machine, what this build can use of it, and its limits."};
    argp_parse(&argp, argc, argv, 0, NULL, NULL);
    char name[128], total[PS_BYTES_TEXT_MAX], available[PS_BYTES_TEXT_MAX];
    ps_machine_memory_info memory;
    ps_kernels kernels;
    const ps_status st = ps_machine_memory(NULL, &memory);
    if (st != PS_OK) return cli_report("info", st);
    ps_machine_cpu_name(NULL, name, sizeof name);
    ps_kernels_init_cpu(&kernels, ps_cpu_isa_detect());
    printf("pstar               %d.%d.%d\n", PS_VERSION_MAJOR, PS_VERSION_MINOR, PS_VERSION_PATCH);
    printf("processor           %s, %d cores usable\n", name, ps_machine_cores(NULL));
    printf("instruction set     %s\n", ps_cpu_isa_name(ps_cpu_isa_detect()));
    printf("memory              %s, %s available (least of the machine and its control groups)\n",
           ps_bytes_format(memory.total_bytes, total), ps_bytes_format(memory.available_bytes, available));
    show_disk();
    printf("kernel backends     %s; ref (plain C, for checking)\n", kernels.name);
    printf("number formats      f32, bf16 (%s), fp16 (stored in 16 bits, multiplied in f32)\n",
           ps_cpu_isa_detect() == PS_CPU_AVX512_BF16 ? "multiplied in bf16" : "multiplied in f32");
    printf("limits              one process, no GPU in this version; models: gpt2\n");
    return 0;
}
