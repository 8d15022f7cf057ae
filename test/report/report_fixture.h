/* report_fixture.h - profiles written down in a test: two chunks of each list, a fact or event exchanged at will. */
#ifndef PS_TEST_REPORT_FIXTURE_H
#define PS_TEST_REPORT_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/report/figures.h"
#include "base/file.h"
#include "temp_folder.h"

#define FACTS                                                                                                          \
    "\"version\":1,\"simulated\":false,\"rank\":0,\"n_ranks\":1,\"title\":\"a <b> & \\\"c\\\".json\",\"begin_ns\":0,"  \
    "\"steps\":[2,3],\"budgets\":{\"device\":1000000,\"host\":500000,\"disk\":0},\"chunk_elements\":100,"              \
    "\"n_chunks\":2,\"waste\":0.25,\"chunks\":["                                                                       \
    "{\"id\":0,\"list\":\"PARAM16\",\"index\":0,\"bytes\":200,\"tensors\":[\"wte\",\"</script>\"]},"                   \
    "{\"id\":1,\"list\":\"PARAM16\",\"index\":1,\"bytes\":200,\"tensors\":[]},"                                        \
    "{\"id\":4,\"list\":\"MOMENTUM\",\"index\":0,\"bytes\":400,\"tensors\":[\"wte\"]},"                                \
    "{\"id\":6,\"list\":\"VARIANCE\",\"index\":0,\"bytes\":400,\"tensors\":[\"wte\"]}],"                               \
    "\"predicted\":{\"step_seconds\":0.0002,\"critical\":null,\"busy_seconds\":{\"compute\":0.0001}},"                 \
    "\"measured\":{\"step_seconds\":0.0001,\"critical\":\"compute\",\"moved_bytes\":{\"disk read\":400}},"             \
    "\"bound\":{\"by\":\"the <disk>\",\"seconds\":{\"computing\":0.00004,\"the <disk>\":0.00005}},"                    \
    "\"rates\":[{\"of\":\"disk <read>\",\"unit\":\"bytes/s\",\"reckoned\":2e9,\"seen\":5e8}]"

#define SPAN(tid, cat, ts, dur, name, args)                                                                            \
    "{\"ph\":\"X\",\"pid\":0,\"tid\":" #tid ",\"cat\":\"" cat "\",\"ts\":" #ts ",\"dur\":" #dur ",\"name\":\"" name    \
    "\",\"args\":{" args "}}"
#define CHANGE(ts, name, chunk, tier)                                                                                  \
    "{\"ph\":\"i\",\"s\":\"t\",\"pid\":0,\"tid\":9,\"cat\":\"chunk\",\"ts\":" #ts ",\"name\":\"" name                  \
    "\",\"args\":{\"chunk\":" #chunk ",\"tier\":\"" tier "\",\"reason\":\"load\"}}"
#define SAMPLE(ts, name, args) "{\"ph\":\"C\",\"pid\":0,\"ts\":" #ts ",\"name\":\"" name "\",\"args\":{" args "}}"
#define COPY_ARGS                                                                                                      \
    "\"chunk\":4,\"list\":\"MOMENTUM\",\"index\":0,\"bytes\":400,\"from\":\"disk\",\"to\":\"device\","                 \
    "\"reason\":\"prefetch\""

#define PROFILE(events) "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[" events "],\"patrickstar\":{" FACTS "}}"

/* Read a text as a profile's file. */
static inline ps_status read_text(const char *text, ps_report_profile **out)
{
    const temp_folder folder = temp_folder_make();
    const temp_path path = temp_folder_file(&folder, "p.json");
    ps_status st = ps_file_write_all(path.text, text, (int64_t)strlen(text));
    if (st == PS_OK) st = ps_report_profile_read(path.text, out);
    temp_folder_remove(&folder);
    return st;
}

#endif
