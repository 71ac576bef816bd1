/* Stands in for libnvidia-ml.so.1: H200s as a virtual machine with two of them shows them (driver 580.159).
 *
 * GPUs are those of STANDIN_GPU_ADDRESSES. The last of them has the faults that STANDIN_NVML_* inject:
 *   LINKS (active NVLinks), REMOTE (switch, gpu, hidden, ones), THROTTLE (reason bits), CLOCK (MHz under load),
 *   POWER_LIMIT (W), MIG, PERSISTENCE, PEER (NVML_P2P_STATUS), FABRIC (state)
 * and for all of them: BUSY (percent of the time), PROCESSES, USED (bytes of memory), HANG, CRASH,
 *   CLOCK_FILE (where each lock and reset of clocks is written), CLOCK_DENIED (of the last GPU),
 *   WAVE (ms: a job whose power and traffic take turns), HOT (percent of the time; of the last GPU),
 *   LISTS (how many it lists), MUTE (nothing is said of use), OLD (a driver without the newest functions).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, NO_FUNCTION = 13, MOST = 16, LINKS = 18 };

struct gpu {
    int index;
    unsigned domain, bus, device;
};
struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char address[32];
};
struct field {
    uint32_t id, scope;
    int64_t timestamp, latency_us;
    int type, status;
    union {
        unsigned number;
        uint64_t wide;
    } value;
};

static struct gpu gpus[MOST];
static int count;

static long setting(const char *name, long otherwise)
{
    char variable[64];
    snprintf(variable, sizeof variable, "STANDIN_NVML_%s", name);
    const char *text = getenv(variable);
    return text && *text ? strtol(text, NULL, 0) : otherwise;
}

static long fault(const struct gpu *gpu, const char *name, long healthy)
{
    return gpu->index == count - 1 ? setting(name, healthy) : healthy;
}

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    while (setting("HANG", 0))
        pause();
    if (setting("CRASH", 0))
        abort();
    const char *text = getenv("STANDIN_GPU_ADDRESSES");
    char addresses[1024];
    snprintf(addresses, sizeof addresses, "%s", text ? text : "0000:00:06.0,0000:00:07.0");
    count = 0;
    for (char *one = strtok(addresses, ","); one && count < MOST; one = strtok(NULL, ",")) {
        struct gpu *gpu = &gpus[count];
        gpu->index = count;
        if (sscanf(one, "%x:%x:%x", &gpu->domain, &gpu->bus, &gpu->device) == 3)
            count++;
    }
    puts("a library may print what it likes");
    return SUCCESS;
}

static int clocks(const struct gpu *gpu, const char *what, unsigned least, unsigned most)
{
    const char *name = getenv("STANDIN_NVML_CLOCK_FILE");
    FILE *file = name && *name ? fopen(name, "a") : NULL;
    if (!file || (least && fault(gpu, "CLOCK_DENIED", 0)))
        return file ? fclose(file), 4 : NOT_SUPPORTED;
    fprintf(file, "%s %d %u %u\n", what, gpu->index, least, most);
    return fclose(file), SUCCESS;
}

int nvmlDeviceSetGpuLockedClocks(struct gpu *gpu, unsigned least, unsigned most)
{
    return clocks(gpu, "lock", least, most);
}

int nvmlDeviceResetGpuLockedClocks(struct gpu *gpu) { return clocks(gpu, "reset", 0, 0); }

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int status)
{
    return status == NOT_SUPPORTED ? "Not Supported" : status ? "Unknown Error" : "Success";
}

int nvmlSystemGetDriverVersion(char *text, unsigned length)
{
    snprintf(text, length, "580.159.04");
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = 13000;
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *number)
{
    *number = (unsigned)setting("LISTS", count);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **gpu)
{
    if (index >= (unsigned)count)
        return INVALID_ARGUMENT;
    *gpu = &gpus[index];
    return SUCCESS;
}

static void describe(const struct gpu *gpu, struct pci *pci)
{
    memset(pci, 0, sizeof *pci);
    pci->domain = gpu->domain;
    pci->bus = gpu->bus;
    pci->device = gpu->device;
    pci->id = 0x233510DE;
    snprintf(pci->address, sizeof pci->address, "%08X:%02X:%02X.0", gpu->domain, gpu->bus, gpu->device);
}

int nvmlDeviceGetPciInfo_v3(struct gpu *gpu, struct pci *pci)
{
    describe(gpu, pci);
    return SUCCESS;
}

int nvmlDeviceGetName(struct gpu *gpu, char *text, unsigned length)
{
    (void)gpu;
    snprintf(text, length, "NVIDIA H200");
    return SUCCESS;
}

int nvmlDeviceGetUUID(struct gpu *gpu, char *text, unsigned length)
{
    snprintf(text, length, "GPU-5ec2e700-1111-2222-3333-00000000000%d", gpu->index);
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(struct gpu *gpu, int *major, int *minor)
{
    (void)gpu;
    *major = 9;
    *minor = 0;
    return SUCCESS;
}

#define NUMBER(function, number)                                                                                       \
    int function(struct gpu *gpu, unsigned *value)                                                                     \
    {                                                                                                                  \
        (void)gpu;                                                                                                     \
        *value = (unsigned)(number);                                                                                   \
        return SUCCESS;                                                                                                \
    }
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, 16)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, 16)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetMemoryBusWidth, 6144)
NUMBER(nvmlDeviceGetPersistenceMode, fault(gpu, "PERSISTENCE", 1))
NUMBER(nvmlDeviceGetComputeMode, 0)
NUMBER(nvmlDeviceGetPowerUsage, setting("BUSY", 0) ? 512340 : 76490)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, 1000 * fault(gpu, "POWER_LIMIT", 700))
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, 700000)

int nvmlDeviceGetTemperature(struct gpu *gpu, int sensor, unsigned *celsius)
{
    (void)sensor;
    *celsius = 38u + (unsigned)gpu->index;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(struct gpu *gpu, int kind, unsigned *megahertz)
{
    *megahertz = kind == 2 ? 3201 : setting("BUSY", 0) ? (unsigned)fault(gpu, "CLOCK", 1980) : 345;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(struct gpu *gpu, int kind, unsigned *megahertz)
{
    (void)gpu;
    *megahertz = kind == 2 ? 3201 : 1980;
    return SUCCESS;
}

int nvmlDeviceGetApplicationsClock(struct gpu *gpu, int kind, unsigned *megahertz)
{
    return nvmlDeviceGetMaxClockInfo(gpu, kind, megahertz);
}

int nvmlDeviceGetCurrentClocksEventReasons(struct gpu *gpu, unsigned long long *reasons)
{
    *reasons = (setting("BUSY", 0) ? 0u : 1u) | (unsigned long long)fault(gpu, "THROTTLE", 0);
    return SUCCESS;
}

int nvmlDeviceGetEccMode(struct gpu *gpu, int *now, int *pending)
{
    (void)gpu;
    *now = *pending = 1;
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(struct gpu *gpu, int kind, int counter, unsigned long long *errors)
{
    (void)gpu, (void)kind, (void)counter;
    *errors = 0;
    return SUCCESS;
}

int nvmlDeviceGetRemappedRows(struct gpu *gpu, unsigned *right, unsigned *wrong, unsigned *pending, unsigned *failed)
{
    (void)gpu;
    *right = *wrong = *pending = *failed = 0;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(struct gpu *gpu, unsigned *now, unsigned *pending)
{
    *now = *pending = (unsigned)fault(gpu, "MIG", 0);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(struct gpu *gpu, void *memory)
{
    (void)gpu;
    struct {
        unsigned version;
        unsigned long long total, reserved, free, used;
    } *info = memory;
    if (setting("OLD", 0) || setting("MUTE", 0))
        return setting("OLD", 0) ? NO_FUNCTION : NOT_SUPPORTED;
    info->total = 143771ull << 20;
    info->reserved = 616ull << 20;
    info->used = (unsigned long long)setting("USED", 0);
    info->free = info->total - info->reserved - info->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(struct gpu *gpu, unsigned long long memory[3])
{
    (void)gpu;
    memory[0] = 143771ull << 20;
    memory[2] = (unsigned long long)setting("USED", 0);
    memory[1] = memory[0] - memory[2];
    return setting("MUTE", 0) ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetUtilizationRates(struct gpu *gpu, unsigned rates[2])
{
    (void)gpu;
    rates[0] = (unsigned)setting("BUSY", 0);
    rates[1] = 0;
    return setting("MUTE", 0) ? NOT_SUPPORTED : SUCCESS;
}

static int running_processes(unsigned *number, void *processes)
{
    unsigned room = *number, running = (unsigned)setting("PROCESSES", 0);
    *number = running;
    if (running > room)
        return INSUFFICIENT_SIZE;
    if (running)
        memset(processes, 0, running * 24);
    return setting("MUTE", 0) ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct gpu *gpu, unsigned *number, void *processes)
{
    (void)gpu;
    return setting("OLD", 0) ? NO_FUNCTION : running_processes(number, processes);
}

int nvmlDeviceGetComputeRunningProcesses_v2(struct gpu *gpu, unsigned *number, void *processes)
{
    (void)gpu;
    return running_processes(number, processes);
}

#include "nvml_job.h"

int nvmlDeviceGetFieldValues(struct gpu *gpu, int number, struct field *values)
{
    for (int i = 0; i < number; i++) {
        if (values[i].id != 90 && values[i].id != 91) {
            values[i].status = setting("WAVE", 0) ? fields_of_a_job(gpu, &values[i]) : NOT_SUPPORTED;
            continue;
        }
        values[i].type = 1;
        values[i].status = SUCCESS;
        values[i].value.number = values[i].id == 90 ? 26562 : LINKS;
    }
    return SUCCESS;
}

int nvmlDeviceGetNvLinkState(struct gpu *gpu, unsigned link, unsigned *active)
{
    if (link >= LINKS)
        return INVALID_ARGUMENT;
    *active = link < (unsigned)fault(gpu, "LINKS", LINKS);
    return SUCCESS;
}

int nvmlDeviceGetNvLinkVersion(struct gpu *gpu, unsigned link, unsigned *version)
{
    (void)gpu, (void)link;
    *version = 6;
    return SUCCESS;
}

static const char *remote(void)
{
    const char *text = getenv("STANDIN_NVML_REMOTE");
    return text ? text : "switch";
}

int nvmlDeviceGetNvLinkRemoteDeviceType(struct gpu *gpu, unsigned link, int *kind)
{
    (void)gpu, (void)link;
    if (strcmp(remote(), "hidden") == 0)
        return NOT_SUPPORTED;
    *kind = strcmp(remote(), "gpu") == 0 ? 0 : 2;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct gpu *gpu, unsigned link, struct pci *pci)
{
    memset(pci, 0, sizeof *pci);
    if (strcmp(remote(), "hidden") == 0)
        return NOT_SUPPORTED;
    if (strcmp(remote(), "gpu") == 0) {
        describe(&gpus[(gpu->index + 1) % count], pci);
    } else if (strcmp(remote(), "ones") == 0) { /* as a driver in a virtual machine answers */
        pci->domain = 0xffffffff;
        pci->bus = pci->device = 0xff;
    } else {
        pci->bus = 0x05;
        pci->device = link % 4;
    }
    return SUCCESS;
}

int nvmlDeviceGetGpuFabricInfoV(struct gpu *gpu, void *answer)
{
    struct {
        unsigned version;
        unsigned char cluster[16];
        int status;
        uint32_t clique;
        unsigned char state;
        uint32_t health;
    } *info = answer;
    memset(info->cluster, 0, sizeof info->cluster);
    info->status = SUCCESS;
    info->state = (unsigned char)fault(gpu, "FABRIC", 3);
    return SUCCESS;
}

int nvmlDeviceGetP2PStatus(struct gpu *one, struct gpu *other, int index, int *status)
{
    (void)index;
    long first = fault(one, "PEER", 0);
    *status = (int)(first ? first : fault(other, "PEER", 0));
    return SUCCESS;
}

int nvmlDeviceGetTopologyCommonAncestor(struct gpu *one, struct gpu *other, int *level)
{
    (void)one, (void)other;
    *level = 30;
    return SUCCESS;
}
