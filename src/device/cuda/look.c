#include "device/cuda/look.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VENDOR 0x10de
/* The upper byte of a PCI class: display controllers, including 3D controllers without a display. */
#define CLASS_DISPLAY 0x03

/* A number in a file of /sys, "0x10de"; 0: none. */
static unsigned long read_number(const char *root, const char *device, const char *file)
{
    char path[PATH_MAX], text[32] = "";
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/%s", root, device, file);
    FILE *f = fopen(path, "r");
    if (f == NULL) return 0;
    const bool is_read = fgets(text, sizeof text, f) != NULL;
    fclose(f);
    return is_read ? strtoul(text, NULL, 16) : 0;
}

/* The user has put a driver where the loader looks first. */
static bool is_driver_in_environment(void)
{
    char path[PATH_MAX];
    const char *folders = getenv("LD_LIBRARY_PATH");
    while (folders != NULL && *folders != '\0') {
        const size_t length = strcspn(folders, ":;");
        const int n = snprintf(path, sizeof path, "%.*s/libcuda.so.1", (int)length, folders);
        if (length > 0 && n < (int)sizeof path && access(path, F_OK) == 0) return true;
        folders += length + (folders[length] != '\0');
    }
    return false;
}

bool ps_cuda_has_hardware(const char *root)
{
    char path[PATH_MAX];
    if (root == NULL && is_driver_in_environment()) return true;
    if (root == NULL) root = "";
    snprintf(path, sizeof path, "%s/proc/driver/nvidia/version", root);
    if (access(path, F_OK) == 0) return true;
    /* a container may have only the device files: gVisor's have neither that file nor PCI */
    snprintf(path, sizeof path, "%s/dev/nvidiactl", root);
    if (access(path, F_OK) == 0) return true;
    /* WSL has no PCI, but NVIDIA's driver from Windows, if installed */
    snprintf(path, sizeof path, "%s/usr/lib/wsl/lib/libcuda.so.1", root);
    if (access(path, F_OK) == 0) return true;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices", root);
    DIR *all = opendir(path);
    bool found = false;
    for (const struct dirent *d; all != NULL && !found && (d = readdir(all)) != NULL;)
        found = read_number(root, d->d_name, "vendor") == VENDOR &&
                read_number(root, d->d_name, "class") >> 16 == CLASS_DISPLAY;
    if (all != NULL) closedir(all);
    return found;
}

static ps_status describe(const ps_cuda_driver *d, char *out, size_t bytes)
{
    ps_cu_device device;
    char name[128];
    int n = 0, version = 0, major = 0, minor = 0;
    if (d->device_count(&n) != PS_CU_SUCCESS || d->version(&version) != PS_CU_SUCCESS ||
        d->device_get(&device, 0) != PS_CU_SUCCESS || d->device_name(name, sizeof name, device) != PS_CU_SUCCESS ||
        d->device_attribute(&major, PS_CU_DEVICE_CAPABILITY_MAJOR, device) != PS_CU_SUCCESS ||
        d->device_attribute(&minor, PS_CU_DEVICE_CAPABILITY_MINOR, device) != PS_CU_SUCCESS)
        return PS_FAIL(PS_EDEVICE, "NVIDIA's driver does not report its devices");
    snprintf(out, bytes, "%d, %s (compute capability %d.%d), driver for CUDA %d.%d", n, name, major, minor,
             version / 1000, version % 1000 / 10);
    return PS_OK;
}

bool ps_cuda_look(const char *root, const ps_cuda_driver *driver, char *out, size_t bytes)
{
    if (!ps_cuda_has_hardware(root)) {
        snprintf(out, bytes, "no NVIDIA GPU found");
        return false;
    }
    ps_status st = driver == NULL ? ps_cuda_driver_load(&driver) : ps_cuda_driver_start(driver);
    if (st == PS_OK) st = describe(driver, out, bytes);
    if (st != PS_OK) snprintf(out, bytes, "NVIDIA GPU not usable: %s", ps_last_error());
    return st == PS_OK;
}
