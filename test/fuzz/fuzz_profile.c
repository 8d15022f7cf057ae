/* Any bytes as a profile: refused with a message, or figures whose parts lie inside of the time axis. */
#include <stdint.h>
#include <stdlib.h>

#include "api/report/figures.h"
#include "base/mem.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MUST(condition)                                                                                                \
    if (!(condition)) abort()

static void check_figures(const ps_figures *f)
{
    const ps_report_profile *p = f->profile;
    MUST(f->begin_ns < f->end_ns);
    for (int i = 0; i < f->n_stays; i++) {
        const ps_figure_stay *s = &f->stays[i];
        MUST(s->chunk >= 0 && s->chunk < p->n_chunks && s->tiers != 0);
        MUST(s->begin_ns >= f->begin_ns && s->begin_ns < s->end_ns && s->end_ns <= f->end_ns);
    }
    for (int i = 0; i < p->n_spans; i++) {
        MUST(p->spans[i].chunk < p->n_chunks && p->spans[i].begin_ns <= p->spans[i].end_ns);
        MUST(f->slots[i] >= 0 && f->slots[i] < f->n_slots[p->spans[i].lane]);
    }
    MUST(f->parts.rest_seconds >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const fuzz_file file = fuzz_file_make(data, n);
    ps_report_profile *p = NULL;
    const ps_status st = ps_report_profile_read(file.path, &p);
    MUST(st == PS_OK || (st == PS_EFORMAT && ps_last_error()[0] != '\0'));
    if (st == PS_OK) {
        ps_figures *f = NULL;
        MUST(ps_figures_create(p, &f) == PS_OK);
        check_figures(f);
        ps_figures_destroy(f);
        ps_report_profile_destroy(p);
    }
    close(file.fd);
    MUST(ps_mem_live_bytes() == 0);
    return 0;
}
