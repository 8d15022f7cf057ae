/* reason.h - why a copy is made, or a chunk arrives on or leaves a tier: recorded in profiles. */
#ifndef PS_CHUNK_REASON_H
#define PS_CHUNK_REASON_H

typedef enum ps_reason {
    PS_REASON_WANTED,      /* copy: the current moment needs it */
    PS_REASON_PREFETCH,    /* copy: a coming moment needs it */
    PS_REASON_WRITE_BACK,  /* copy and arrive: from a tier that needs room */
    PS_REASON_START,       /* arrive: present when recording began */
    PS_REASON_CREATE,      /* arrive: new content */
    PS_REASON_LOAD,        /* arrive: where it is used now or later */
    PS_REASON_RESTORE,     /* arrive: the content of before a change counts again */
    PS_REASON_EVICT,       /* leave: room for another chunk */
    PS_REASON_ACTIVATIONS, /* leave: room for activations */
    PS_REASON_DROP,        /* leave: a copy that is stale or redundant */
    PS_REASON_DISCARD,     /* leave: the content is discarded */
    PS_REASON_COUNT,
} ps_reason;

const char *ps_reason_name(ps_reason r); /* "wanted", "write back" */

#endif
