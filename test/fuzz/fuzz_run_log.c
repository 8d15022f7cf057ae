/* Any bytes as the log of a run: refused with a message, or steps that rise, of which a page can be written. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/report/report.h"
#include "base/mem.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MUST(condition)                                                                                                \
    if (!(condition)) abort()

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char page[] = "/tmp/patrickstar-fuzz-XXXXXX";
    static int fd = -1;
    const fuzz_file file = fuzz_file_make(data, n);
    ps_report_log *l = NULL;
    char *found = NULL;
    if (fd < 0) MUST((fd = mkstemp(page)) >= 0);
    const ps_status is_log = ps_report_log_find(file.path, &found);
    MUST(is_log == PS_OK || (is_log == PS_EFORMAT && strstr(ps_last_error(), "git-lfs") != NULL));
    ps_mem_free(found);
    const ps_status st = ps_report_log_read(file.path, &l);
    MUST(st == PS_OK || (st == PS_EFORMAT && ps_last_error()[0] != '\0'));
    if (st == PS_OK) {
        MUST(l->n_steps > 0 && l->n_ranks >= 1 && l->title[0] != '\0');
        for (int64_t i = 1; i < l->n_steps; i++) MUST(l->steps[i].step > l->steps[i - 1].step);
        for (int64_t i = 0; i < l->n_saves; i++) MUST((l->saves[i].name == NULL) != (l->saves[i].error == NULL));
        MUST(ps_report_write_log(l, page) == PS_OK);
        ps_report_log_destroy(l);
    }
    unlink(page);
    close(file.fd);
    MUST(ps_mem_live_bytes() == 0);
    return 0;
}
