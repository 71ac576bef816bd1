/* A part of nvml.c: GPUs at a job whose power and traffic take turns, STANDIN_NVML_WAVE (ms) and STANDIN_NVML_HOT. */

/* Of each period of WAVE ms all GPUs work for the first 6 tenths, and the others are traffic. */
static int fields_of_a_job(const struct gpu *gpu, struct field *value)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long wave = setting("WAVE", 0), ms = now.tv_sec * 1000 + now.tv_nsec / 1000000, within = wave ? ms % wave : 0;
    long works = 6 * wave / 10, sent = wave ? ms / wave * (wave - works) + (within > works ? within - works : 0) : 0;
    value->type = 3;
    if (value->id == 186) /* mW */
        value->value.wide = (wave && within >= works ? 120000u : setting("BUSY", 0) ? 512340u : 76490u) + (unsigned)(ms % 7);
    else if (value->id == 138 || value->id == 139) /* KiB, 100 GB/s */
        value->value.wide = (uint64_t)sent * 100000000 / 1024;
    else if (value->id == 75) /* ns held back for its heat */
        value->value.wide = (uint64_t)ms * 10000 * (uint64_t)fault(gpu, "HOT", 0);
    else
        return NOT_SUPPORTED;
    return SUCCESS;
}

/* Every 20 ms the driver samples the power itself, and keeps the last 120. */
int nvmlDeviceGetSamples(struct gpu *gpu, int kind, unsigned long long after_us, int *type, unsigned *count, void *given)
{
    (void)gpu;
    struct {
        unsigned long long at_us;
        union {
            unsigned number;
            unsigned long long wide;
        } value;
    } *samples = given;
    long wave = setting("WAVE", 0), works = 6 * wave / 10;
    if (kind || !wave)
        return NOT_SUPPORTED;
    struct timespec now, steady;
    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_MONOTONIC, &steady);
    long long now_us = now.tv_sec * 1000000ll + now.tv_nsec / 1000;
    long long apart_us = now_us - (steady.tv_sec * 1000000ll + steady.tv_nsec / 1000);
    unsigned room = *count, found = 0;
    for (long long at_us = now_us / 20000 * 20000 - 119 * 20000; at_us <= now_us && found < room; at_us += 20000) {
        if ((unsigned long long)at_us <= after_us)
            continue;
        long ms = (long)((at_us - apart_us) / 1000);
        samples[found].at_us = (unsigned long long)at_us;
        samples[found++].value.number = (ms % wave >= works ? 120000u : 512340u) + (unsigned)(at_us / 20000 % 7);
    }
    *type = 1;
    *count = found;
    return found ? SUCCESS : 6; /* not found */
}
