/* stand_in.h - CUDA for tests of the engine: a driver that is not there (test/cuda/fake_driver.h) with kernels on the
 * emulator, in place of this machine's; but with PS_TEST_GPU=hardware this machine's.
 *
 *   PS_TEST_ATTENTION  "cudnn": tests of operators have attention by cuDNN, over the fake driver that of fake_cudnn.h;
 *                      else they do without */
#ifndef TEST_GPU_STAND_IN_H
#define TEST_GPU_STAND_IN_H

#include "cuda/cudnn_attention.h"
#include "cuda/fake_cudnn.h"
#include "cuda/fake_gpu.h"
#include "cuda/fake_nccl.h"
#include "cuda/open.h"
#include "device/device.h"

static struct {
    const ps_cuda_driver *driver;
    ps_cuda_parts parts;
    bool has_cudnn;
} stand_in;

static inline bool stand_in_is_hardware(void)
{
    const char *text = getenv("PS_TEST_GPU");
    return text != NULL && strcmp(text, "hardware") == 0;
}

static ps_status stand_in_driver(const ps_cuda_driver **out)
{
    *out = stand_in.driver;
    return ps_cuda_driver_start(stand_in.driver);
}

static ps_status stand_in_nccl(const ps_nccl **out)
{
    *out = &fake_nccl;
    return PS_OK;
}

static ps_status stand_in_image(const ps_cuda_image **out)
{
    *out = &fake_gpu_image;
    return PS_OK;
}

/* What engines do is looked at by the checker of order from now on, or not any more. */
static inline void stand_in_check_order(bool checks)
{
    stand_in.parts.checks_order = checks;
}

static inline void stand_in_begin(const fake_options *o)
{
    if (stand_in_is_hardware()) {
        stand_in.parts = *ps_cuda_get_parts();
    } else {
        stand_in.driver = fake_driver(o);
        fake_gpu_add_kernels(NULL);
        fake_nccl_begin();
        stand_in.parts = (ps_cuda_parts){.driver = stand_in_driver,
                                         .image = stand_in_image,
                                         .products = fake_gpu_products,
                                         .product_bytes = FAKE_PRODUCT_BYTES,
                                         .nccl = stand_in_nccl,
                                         .nccl_bytes = PS_MIB,
                                         .poisons = true};
    }
    ps_cuda_use_parts(&stand_in.parts);
}

static ps_status stand_in_attention(ps_gpu *gpu, ps_cuda_attention *out)
{
    return ps_cudnn_attention_open_with(gpu, &fake_cudnn, PS_CUDNN_WORKSPACE_BYTES, out);
}

/* From now on cuDNN is installed; on hardware, where it is. */
static inline void stand_in_install_cudnn(void)
{
    if (stand_in_is_hardware() || stand_in.has_cudnn) return;
    stand_in.has_cudnn = true;
    fake_cudnn_begin();
    stand_in.parts.attention = stand_in_attention;
    ps_cuda_use_parts(&stand_in.parts);
}

static inline ps_cuda_attention_choice stand_in_choice(void)
{
    const char *text = getenv("PS_TEST_ATTENTION");
    return text != NULL && strcmp(text, "cudnn") == 0 ? PS_CUDA_ATTENTION_CUDNN : PS_CUDA_ATTENTION_OWN;
}

/* False: something was left. */
static inline bool stand_in_end(void)
{
    const bool is_clean = !stand_in.has_cudnn || fake_cudnn_end();
    stand_in.has_cudnn = false;
    ps_cuda_use_parts(NULL);
    if (stand_in_is_hardware()) return is_clean;
    const bool nccl_is_clean = fake_nccl_end();
    return fake_driver_end() && nccl_is_clean && is_clean;
}

#endif
