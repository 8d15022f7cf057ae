/* embed.h - files of the repository that become part of the program, put there by the assembler as they are. */
#ifndef PS_BASE_EMBED_H
#define PS_BASE_EMBED_H

/* Defines `name`, which a header declares as `extern const char name[]`: the file's bytes and a zero byte behind them.
 * path: from the root of the repository, where make runs; the Makefile must name the file as what the object depends
 * on. */
#define PS_EMBED(name, path)                                                                                           \
    __asm__(".pushsection .rodata\n"                                                                                   \
            ".global " #name "\n.hidden " #name "\n.type " #name ", @object\n" #name ":\n"                             \
            ".incbin \"" path "\"\n.byte 0\n.size " #name ", . - " #name "\n"                                          \
            ".popsection\n")

#endif
