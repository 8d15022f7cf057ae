/* mock_gpu.h - CUDA for tests of the engine: a driver that is not there (test/cuda/fake_driver.h) with kernels on the
 * emulator, in place of this machine's; but with PS_TEST_GPU=hardware this machine's.
 *
 *   PS_TEST_ATTENTION  "cudnn": tests of operators have attention by cuDNN, over the fake driver that of fake_cudnn.h;
 *                      else they do without */
#ifndef TEST_GPU_MOCK_GPU_H
#define TEST_GPU_MOCK_GPU_H

#include "cuda/fake_cudnn.h"
#include "cuda/fake_gpu.h"
#include "cuda/fake_nccl.h"
#include "device/cuda/cudnn_attention.h"
#include "device/cuda/open.h"
#include "device/device.h"

typedef struct mock_gpu_state {
    const ps_cuda_driver *driver;
    ps_cuda_parts parts;
    bool has_cudnn;
} mock_gpu_state;

#ifdef TEST_OPS /* several tests are one program (gpu/ops.c) */
extern mock_gpu_state mock_gpu;
#else
static mock_gpu_state mock_gpu;
#endif

static inline bool mock_gpu_is_hardware(void)
{
    const char *text = getenv("PS_TEST_GPU");
    return text != NULL && strcmp(text, "hardware") == 0;
}

static ps_status mock_gpu_driver(const ps_cuda_driver **out)
{
    *out = mock_gpu.driver;
    return ps_cuda_driver_start(mock_gpu.driver);
}

static ps_status mock_gpu_nccl(const ps_nccl **out)
{
    *out = &fake_nccl;
    return PS_OK;
}

static ps_status mock_gpu_image(const ps_cuda_image **out)
{
    *out = &fake_gpu_image;
    return PS_OK;
}

/* What engines do is looked at by the checker of order from now on, or not any more. */
static inline void mock_gpu_check_order(bool checks)
{
    mock_gpu.parts.checks_order = checks;
}

static inline void mock_gpu_begin(const fake_options *o)
{
    if (mock_gpu_is_hardware()) {
        mock_gpu.parts = *ps_cuda_get_parts();
    } else {
        mock_gpu.driver = fake_driver(o);
        fake_gpu_add_kernels(NULL);
        fake_nccl_begin();
        mock_gpu.parts = (ps_cuda_parts){.driver = mock_gpu_driver,
                                         .image = mock_gpu_image,
                                         .gemms = fake_gpu_gemms,
                                         .gemm_bytes = FAKE_GEMM_BYTES,
                                         .nccl = mock_gpu_nccl,
                                         .nccl_bytes = PS_MIB,
                                         .poisons = true,
                                         .stream_commands = fake_depth()};
    }
    ps_cuda_use_parts(&mock_gpu.parts);
}

static ps_status mock_gpu_attention(ps_gpu *gpu, ps_cuda_attention *out)
{
    return ps_cudnn_attention_open_with(gpu, &fake_cudnn, PS_CUDNN_WORKSPACE_BYTES, out);
}

/* From now on cuDNN is installed; on hardware, where it is. */
static inline void mock_gpu_install_cudnn(void)
{
    if (mock_gpu_is_hardware() || mock_gpu.has_cudnn) return;
    mock_gpu.has_cudnn = true;
    fake_cudnn_begin();
    mock_gpu.parts.attention = mock_gpu_attention;
    ps_cuda_use_parts(&mock_gpu.parts);
}

static inline ps_cuda_attention_choice mock_gpu_choice(void)
{
    const char *text = getenv("PS_TEST_ATTENTION");
    return text != NULL && strcmp(text, "cudnn") == 0 ? PS_CUDA_ATTENTION_CUDNN : PS_CUDA_ATTENTION_OWN;
}

/* False: something was left. */
static inline bool mock_gpu_end(void)
{
    const bool is_clean = !mock_gpu.has_cudnn || fake_cudnn_end();
    mock_gpu.has_cudnn = false;
    ps_cuda_use_parts(NULL);
    if (mock_gpu_is_hardware()) return is_clean;
    const bool nccl_is_clean = fake_nccl_end();
    return fake_driver_end() && nccl_is_clean && is_clean;
}

#endif
