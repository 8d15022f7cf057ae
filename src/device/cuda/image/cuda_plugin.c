/* cuda_plugin.c - libpatrickstar_cuda.so: the images of build/cuda, which the assembler includes as data; loaded by
 * device/cuda/plugin.c. The Makefile lists them (PS_CUDA_MODULES: XX(cuda_norm) ...), says where they are
 * (PS_CUDA_IMAGES: "build/cuda/") and knows that this file depends on them. Paths are relative to the root of the
 * repository, where make runs. Uses nothing of the library. */
#include "device/cuda/plugin.h"

#define XX(name)                                                                                                       \
    __asm__(".pushsection .rodata\n.balign 64\n"                                                                       \
            ".type image_" #name ", @object\nimage_" #name ":\n.incbin \"" PS_CUDA_IMAGES #name ".fatbin\"\n"          \
            ".size image_" #name ", . - image_" #name "\n.popsection\n");                                              \
    extern const char image_##name[];
PS_CUDA_MODULES
#undef XX

#define XX(name) image_##name,
static const void *const modules[] = {PS_CUDA_MODULES};
#undef XX

extern const ps_cuda_image ps_cuda_plugin;
__attribute__((visibility("default"))) const ps_cuda_image ps_cuda_plugin = {
    .abi = PS_CUDA_IMAGE_ABI, .n_modules = PS_ARRAY_LEN(modules), .kernels = PS_CUDA_SUM, .modules = modules};
