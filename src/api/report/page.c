#include "api/report/page.h"

#include <stdio.h>
#include <string.h>

#include "api/report/assets.h"
#include "base/base.h"

ps_page ps_page_begin(const char *figures, const char *script)
{
    return (ps_page){.figures = figures, .script = script, .rest = ps_asset_page};
}

/* Write what stands for a mark; false: that is the caller's. */
static bool put_asset(ps_page *p, ps_text_out *o)
{
    const struct {
        const char *name, *text;
    } assets[] = {{"style", ps_asset_style},
                  {"plot-style", ps_asset_plot_style},
                  {"plot-script", ps_asset_plot_script},
                  {"page-script", ps_asset_page_script},
                  {"script", p->script}};
    for (size_t i = 0; i < PS_ARRAY_LEN(assets); i++) {
        if (strcmp(p->mark, assets[i].name) != 0) continue;
        ps_text_out_string(o, assets[i].text);
        return true;
    }
    if (strcmp(p->mark, "figures") != 0) return false;
    p->outer = p->rest;
    p->rest = p->figures;
    return true;
}

const char *ps_page_next(ps_page *p, ps_text_out *o)
{
    for (;;) {
        const char *mark = strchr(p->rest, '@'), *end = mark != NULL ? strchr(mark + 1, '@') : NULL;
        if (end != NULL) {
            ps_text_out_bytes(o, p->rest, (size_t)(mark - p->rest));
            snprintf(p->mark, sizeof p->mark, "%.*s", (int)(end - mark - 1), mark + 1);
            p->rest = end + 1;
            if (!put_asset(p, o)) return p->mark;
            continue;
        }
        ps_text_out_string(o, p->rest);
        if (p->outer == NULL) return NULL;
        p->rest = p->outer;
        p->outer = NULL;
    }
}
