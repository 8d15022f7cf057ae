/* embed.h - files of the repository that the assembler embeds in the program unchanged. */
#ifndef PS_BASE_EMBED_H
#define PS_BASE_EMBED_H

/* Defines `name`, which a header declares as `extern const char name[]`: the file's bytes and a terminating zero byte.
 * path is relative to the root of the repository, where make runs; the Makefile must list the file as a prerequisite of
 * the object. */
#define PS_EMBED(name, path)                                                                                           \
    __asm__(".pushsection .rodata\n"                                                                                   \
            ".global " #name "\n.hidden " #name "\n.type " #name ", @object\n" #name ":\n"                             \
            ".incbin \"" path "\"\n.byte 0\n.size " #name ", . - " #name "\n"                                          \
            ".popsection\n")

#endif
