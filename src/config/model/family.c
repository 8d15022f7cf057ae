#include "config/model/family.h"

#include <string.h>

#define XX(value, text, name) extern const ps_family ps_family_##name;
PS_CONFIG_MODEL_MAP(XX)
#undef XX

static const ps_family *const families[] = {
#define XX(value, text, name) [value] = &ps_family_##name,
    PS_CONFIG_MODEL_MAP(XX)
#undef XX
};

int ps_family_count(void)
{
    return (int)PS_ARRAY_LEN(families);
}

const ps_family *ps_family_at(int i)
{
    return i >= 0 && i < (int)PS_ARRAY_LEN(families) ? families[i] : NULL;
}

const ps_family *ps_family_of(const ps_options *o)
{
    return families[o->model_type];
}

const ps_family *ps_family_find(const char *name, ps_config_model *type)
{
    for (int i = 0; i < (int)PS_ARRAY_LEN(families); i++) {
        if (strcmp(ps_config_model_names[i], name) != 0) continue;
        *type = (ps_config_model)i;
        return families[i];
    }
    return NULL;
}

const char *ps_family_base(const ps_family *f, ps_config_head head)
{
    const bool is_other = head == PS_CONFIG_HEAD_QUESTION_ANSWERING && f->base_of_questions != NULL;
    return is_other ? f->base_of_questions : f->base;
}

static bool lists(const ps_family *f, ps_option_id id)
{
    for (const ps_traits *t = &f->traits; t != NULL; t = t->more)
        for (const ps_option_id *used = t->uses; used != NULL && *used != 0; used++)
            if (*used == id) return true;
    return false;
}

bool ps_family_uses(const ps_family *f, ps_option_id id)
{
    if (lists(f, id)) return true;
    for (size_t i = 0; i < PS_ARRAY_LEN(families); i++)
        if (lists(families[i], id)) return false;
    return true;
}
