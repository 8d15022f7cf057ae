/* no_driver.c - what cuDNN looks for in libcuda.so.1 when it plans for a GPU that is described and not here: a shared object
 * of that name, in which there is no device, and into which compiled kernels are loaded and never run. Names and results
 * are those of cuda.h. */

enum { CUDA_SUCCESS = 0, CUDA_ERROR_NO_DEVICE = 100 };

#define XX(name)                                                                                                       \
    int name(void);                                                                                                    \
    int name(void)                                                                                                     \
    {                                                                                                                  \
        return CUDA_ERROR_NO_DEVICE;                                                                                   \
    }
XX(cuInit)
XX(cuDeviceGet)
XX(cuDeviceGetCount)
XX(cuCtxGetCurrent)
XX(cuCtxGetLimit)
XX(cuCtxPopCurrent)
XX(cuCtxPushCurrent)
XX(cuGetErrorName)
XX(cuGetErrorString)
XX(cuLaunchCooperativeKernel)
XX(cuLaunchKernel)
XX(cuLaunchKernelEx)
XX(cuLibraryLoadFromFile)
XX(cuLinkAddData)
XX(cuLinkComplete)
XX(cuLinkCreate)
XX(cuLinkDestroy)
XX(cuOccupancyMaxPotentialClusterSize)
XX(cuStreamGetCtx)
#undef XX

#define XX(name)                                                                                                       \
    int name(void);                                                                                                    \
    int name(void)                                                                                                     \
    {                                                                                                                  \
        return CUDA_SUCCESS;                                                                                           \
    }
XX(cuKernelGetAttribute)
XX(cuKernelSetAttribute)
XX(cuLibraryUnload)
#undef XX

int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return CUDA_SUCCESS;
}

int cuLibraryLoadData(void **library);
int cuLibraryLoadData(void **library)
{
    *library = library; /* any address, which is not looked at */
    return CUDA_SUCCESS;
}

int cuLibraryGetKernel(void **kernel);
int cuLibraryGetKernel(void **kernel)
{
    *kernel = kernel;
    return CUDA_SUCCESS;
}
