/* What a configuration says arrives in the settings; what it does there is tested where it acts. */
#include "engine/engine_fixture.h"

#include "config/config.h"
#include "train/settings/settings.h"

static ps_settings settings_of(const char *change)
{
    ps_settings s;
    ps_config *c = TINY(change);
    assert_ok(ps_settings_read(c, true, &s));
    ps_config_destroy(c);
    return s;
}

/* With this change, and not without it, the settings s are so. */
#define SAYS(change, condition)                                                                                        \
    do {                                                                                                               \
        ps_settings s = settings_of("train.seed=7");                                                                   \
        if (condition) fail_msg("%s: so without it", change);                                                          \
        s = settings_of(change);                                                                                       \
        if (!(condition)) fail_msg("%s does not arrive", change);                                                      \
    } while (0)

static void step_arrives(void **state)
{
    (void)state;
    ps_config *c = TINY("activation_checkpointing.enabled=true", "client.opts.with_activation_offload=true");
    ps_settings offloading;
    assert_ok(ps_settings_read(c, true, &offloading));
    ps_config_destroy(c);
    assert_true(offloading.offloads_inputs && !settings_of("train.seed=7").offloads_inputs);
    SAYS("train_micro_batch_size_per_gpu=5", s.B == 5);
    SAYS("gradient_accumulation_steps=3", s.accumulation == 3);
    SAYS("data.sequence_length=8", s.T == 8);
    SAYS("bf16.enabled=true", s.dtype == PS_DTYPE_BF16);
    SAYS("fp16.enabled=true", s.dtype == PS_DTYPE_F16);
    SAYS("train.loss_average=micro_batches", s.loss_average == PS_CONFIG_LOSS_AVERAGE_MICRO_BATCHES);
    SAYS("gradient_clipping=0.25", s.clip_norm == 0.25);
    SAYS("activation_checkpointing.enabled=true", s.checkpointing);
    SAYS("activation_checkpointing.number_checkpoints=2", s.n_checkpoints == 2);
    SAYS("train.seed=11", s.seed == 11);
    SAYS("train.threads=3", s.threads == 3);
    SAYS("train.stall_s=0.5", s.stall_ns == 500000000);
    SAYS("train.backend=ref", s.backend_kind == PS_BACKEND_REF);
    SAYS("train.isa=portable", s.isa == PS_CPU_PORTABLE);
    SAYS("train.max_nonfinite_steps=9", s.max_nonfinite_steps == 9);
    SAYS("train.keep_last=7", s.keep_checkpoints == 7);
}

static void memory_arrives(void **state)
{
    (void)state;
    SAYS("memory.device=5MB", s.budgets.bytes[PS_TIER_DEVICE] == 5000000);
    SAYS("memory.host=6MB", s.budgets.bytes[PS_TIER_HOST] == 6000000);
    SAYS("memory.disk=7MB", s.budgets.bytes[PS_TIER_DISK] == 7000000);
    SAYS("memory.disk_path=/somewhere", strcmp(s.tiers.disk_folders, "/somewhere") == 0);
    SAYS("memory.disk_path=/somewhere,/else", strcmp(s.tiers.disk_folders, "/somewhere,/else") == 0);
    SAYS("memory.disk_backend=threads", s.tiers.disk_backend == PS_DISK_THREADS);
    SAYS("memory.disk_backend=io_uring", s.tiers.disk_backend == PS_DISK_URING);
    SAYS("memory.prefetch=9", s.tiers.store.prefetch == 9);
    SAYS("memory.defer_updates=false", !s.defer_updates);
    SAYS("memory.keep_logits=always", s.keep_logits == PS_KEEP_LOGITS_ALWAYS);
    SAYS("memory.keep_logits=never", s.keep_logits == PS_KEEP_LOGITS_NEVER);
    SAYS("default_chunk_size=4096", s.chunk_elements == 4096);
    SAYS("profile.path=p.json", strcmp(s.profile_path, "p.json") == 0);
}

/* Only where an update needs nothing that the end of the backward pass shows, or can be taken back. */
static void updates_may_be_early(void **state)
{
    (void)state;
    static const struct {
        const char *changes[3];
        bool may, always, speculates;
    } cases[] = {
        {{"gradient_clipping=0", "train.max_nonfinite_steps=1", "bf16.enabled=true"}, true, false, false},
        {{"gradient_clipping=-1", "train.max_nonfinite_steps=1", "bf16.enabled=false"}, true, false, false},
        {{"gradient_clipping=0", "train.max_nonfinite_steps=1", "memory.update_in_backward=always"}, true, true, false},
        {{"gradient_clipping=0", "train.max_nonfinite_steps=1", "memory.update_in_backward=never"},
         false,
         false,
         false},
        {{"gradient_clipping=0.1", "train.max_nonfinite_steps=1", "bf16.enabled=true"}, false, false, false},
        {{"gradient_clipping=0", "train.max_nonfinite_steps=2", "bf16.enabled=true"}, false, false, false},
        {{"gradient_clipping=0", "train.max_nonfinite_steps=0", "bf16.enabled=true"}, false, false, false},
        {{"gradient_clipping=0", "train.max_nonfinite_steps=1", "fp16.enabled=true"}, false, false, false},
        {{"gradient_clipping=0", "train.max_nonfinite_steps=1", "memory.update_in_backward=speculate"},
         true,
         false,
         false},
        {{"gradient_clipping=0.1", "bf16.enabled=true", "memory.update_in_backward=speculate"}, false, false, true},
        {{"gradient_clipping=0", "train.max_nonfinite_steps=2", "memory.update_in_backward=speculate"},
         false,
         false,
         true},
        {{"gradient_clipping=0", "fp16.enabled=true", "memory.update_in_backward=speculate"}, false, false, true},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_config *c = TINY(cases[i].changes[0], cases[i].changes[1], cases[i].changes[2]);
        ps_settings s;
        assert_ok(ps_settings_read(c, true, &s));
        if (s.may_update_early != cases[i].may || s.always_updates_early != cases[i].always ||
            s.may_speculate != cases[i].speculates)
            fail_msg("case %zu", i);
        assert_ok(ps_settings_read(c, false, &s));
        assert_false(s.may_update_early || s.always_updates_early || s.may_speculate);
        ps_config_destroy(c);
    }
}

static void save_buffer_is_for_runs_that_save(void **state)
{
    (void)state;
    ps_settings s;
    static const char *const intervals[] = {"train.save_interval=0", "train.save_interval=2"};
    for (int saves = 0; saves < 2; saves++) {
        ps_config *c = TINY("memory.save_buffer=1MB", intervals[saves]);
        assert_ok(ps_settings_read(c, true, &s));
        assert_int_equal(s.save_buffer_bytes, saves ? 1000000 : 0);
        ps_config_destroy(c);
    }
}

static void loss_scale_arrives(void **state)
{
    (void)state;
    ps_settings s;
    ps_config *c = TINY("fp16.enabled=true", "fp16.loss_scale=0", "fp16.initial_scale_power=5",
                        "fp16.loss_scale_window=6", "fp16.hysteresis=7", "fp16.consecutive_hysteresis=true",
                        "fp16.min_loss_scale=8", "fp16.max_loss_scale=64");
    assert_ok(ps_settings_read(c, true, &s));
    assert_true(s.scaler.loss_scale == 0 && s.scaler.initial_scale == 32 && s.scaler.loss_scale_window == 6);
    assert_true(s.scaler.hysteresis == 7 && s.scaler.consecutive_hysteresis);
    assert_true(s.scaler.min_loss_scale == 8 && s.scaler.max_loss_scale == 64);
    assert_int_equal(ps_config_set(c, "fp16.loss_scale", "4"), PS_OK);
    assert_ok(ps_settings_read(c, true, &s));
    assert_true(s.scaler.loss_scale == 4);
    ps_config_destroy(c);
}

static ps_lr_schedule schedule_of(ps_config *c)
{
    ps_settings s;
    assert_ok(ps_settings_read(c, true, &s));
    ps_config_destroy(c);
    return s.groups[0].lr;
}

static void schedule_arrives(void **state)
{
    (void)state;
    ps_lr_schedule lr = schedule_of(TINY("scheduler.params.warmup_min_lr=0.25", "scheduler.params.warmup_max_lr=0.5",
                                         "scheduler.params.warmup_num_steps=5", "scheduler.params.warmup_type=linear",
                                         "scheduler.params.total_num_steps=50", "scheduler.type=WarmupDecayLR"));
    assert_true(lr.type == PS_LR_WARMUP_DECAY_LR && lr.warmup_type == PS_LR_RAMP_LINEAR);
    assert_true(lr.warmup_min_lr == 0.25 && lr.warmup_max_lr == 0.5);
    assert_true(lr.warmup_num_steps == 5 && lr.total_num_steps == 50);
    lr = schedule_of(TINY("scheduler.params.warmup_min_ratio=0.25", "scheduler.params.cos_min_ratio=0.5",
                          "scheduler.type=WarmupCosineLR"));
    assert_true(lr.type == PS_LR_WARMUP_COSINE_LR && lr.warmup_min_ratio == 0.25 && lr.cos_min_ratio == 0.5);
    lr = schedule_of(TINY("optimizer.params.lr=0.5", "scheduler.params.min_lr_ratio=0.25", "scheduler.type=cosine"));
    assert_true(lr.type == PS_LR_COSINE && lr.lr == 0.5 && lr.min_lr_ratio == 0.25);
    assert_int_equal(schedule_of(TINY("scheduler.type=linear")).type, PS_LR_LINEAR);
    assert_int_equal(schedule_of(TINY("scheduler.type=WarmupLR")).type, PS_LR_WARMUP_LR);
}

static void communication_arrives(void **state)
{
    (void)state;
    ps_config *c = TINY("comm.backend=single", "comm.timeout_s=3.5", "comm.staging=1MB");
    const ps_comm_options o = ps_settings_comm_options(c);
    assert_int_equal(o.backend, PS_COMM_SINGLE);
    assert_true(o.timeout_s == 3.5 && o.staging_bytes == 1000000);
    ps_config_destroy(c);
    SAYS("client.opts.with_mem_saving_comm=true", s.ranks.saves_memory);
    SAYS("zero.gradient_predivide_factor=3", s.gradient_predivide == 3);
}

/* Budgets left to the machine are a share of what it has, but for what programs come and go meanwhile. */
static void shares_of_the_machine_arrive(void **state)
{
    (void)state;
    ps_settings s[2];
    for (int i = 0; i < 2; i++) {
        ps_config *c =
            i == 0 ? TINY("memory.device=auto", "memory.host=auto", "use_cpu_embedding=true",
                          "client.mem_tracer.overall_gpu_mem_ratio=0.4", "client.mem_tracer.overall_cpu_mem_ratio=0.2")
                   : TINY("memory.device=auto", "memory.host=auto", "use_cpu_embedding=true");
        assert_ok(ps_settings_read(c, true, &s[i]));
        ps_config_destroy(c);
    }
    const double device = (double)s[1].budgets.bytes[PS_TIER_DEVICE] / (double)s[0].budgets.bytes[PS_TIER_DEVICE];
    const double host = (double)s[1].budgets.bytes[PS_TIER_HOST] / (double)s[0].budgets.bytes[PS_TIER_HOST];
    if (!(device > 1.5 && device < 2.7 && host > 3 && host < 5.3)) fail_msg("device %g, host %g", device, host);
}

/* auto is the machine as a program describes it; the default throughput without a description. */
static void hardware_arrives(void **state)
{
    (void)state;
    ps_settings s;
    ps_hardware hw;
    const ps_throughput defaults = ps_throughput_default();
    assert_ok(ps_hardware_load("examples/hardware/laptop.json", &hw));
    hw.link.to_device_bytes_per_s = 123e9;
    ps_config *c = TINY("memory.host=0");
    assert_ok(ps_settings_read(c, true, &s));
    assert_memory_equal(&s.throughput, &defaults, sizeof defaults);
    ps_config_know_machine(c, &hw);
    assert_ok(ps_settings_read(c, true, &s));
    assert_true(s.throughput.links.link[PS_LINK_HOST_TO_DEVICE].bytes_per_s == 123e9);
    assert_ok(ps_config_set(c, "hardware", "auto"));
    assert_ok(ps_settings_read(c, true, &s));
    assert_true(s.throughput.links.link[PS_LINK_HOST_TO_DEVICE].bytes_per_s == 123e9);
    assert_ok(ps_config_set(c, "hardware", "none"));
    assert_ok(ps_settings_read(c, true, &s));
    assert_memory_equal(&s.throughput, &defaults, sizeof defaults);
    assert_ok(ps_config_set(c, "hardware", "examples/hardware/laptop.json"));
    assert_ok(ps_settings_read(c, true, &s));
    assert_true(s.throughput.links.link[PS_LINK_HOST_TO_DEVICE].bytes_per_s != 123e9);
    ps_config_destroy(c);
}

/* A node without GPUs is planned for with its own processor, whatever this one is; what the configuration says counts
 * before that. */
static void described_processor_arrives(void **state)
{
    (void)state;
    ps_hardware hw;
    ps_settings s;
    assert_ok(ps_hardware_load("examples/hardware/laptop.json", &hw));
    ps_config *c = TINY("train.threads=0");
    for (int i = PS_HARDWARE_ISA_PORTABLE; i < PS_HARDWARE_ISA_COUNT; i++) {
        hw.host.isa = (ps_hardware_isa)i;
        hw.host.cores = 6 + i;
        assert_ok(ps_settings_read(c, true, &s));
        assert_ok(ps_settings_use_hardware(&s, c, &hw));
        assert_true(s.is_described && s.isa == s.processor.isa && s.threads == 6 + i);
        assert_string_equal(ps_cpu_kind_name(&s.processor), ps_hardware_isa_names[i]);
    }
    /* one that does not say so, and one whose GPUs compute */
    hw.host.isa = PS_HARDWARE_ISA_AUTO;
    hw.host.cores = 0;
    assert_ok(ps_settings_read(c, true, &s));
    assert_ok(ps_settings_use_hardware(&s, c, &hw));
    assert_true(!s.is_described && s.isa == ps_cpu_isa_detect() && s.threads == ps_cpu_threads());
    hw.host.isa = PS_HARDWARE_ISA_AVX2;
    hw.gpus_per_node = 1;
    assert_ok(ps_settings_read(c, true, &s));
    assert_ok(ps_settings_use_hardware(&s, c, &hw));
    assert_false(s.is_described);
    hw.gpus_per_node = 0;
    ps_config_destroy(c);

    c = TINY("train.threads=3", "train.isa=portable");
    hw.host.cores = 64;
    assert_ok(ps_settings_read(c, true, &s));
    assert_ok(ps_settings_use_hardware(&s, c, &hw));
    assert_true(s.is_described && s.isa == PS_CPU_PORTABLE && s.processor.isa == PS_CPU_PORTABLE && s.threads == 3);
    ps_config_destroy(c);
    if (ps_cpu_isa_detect() < PS_CPU_AVX2) skip();
    c = TINY("train.isa=avx2");
    hw.host.isa = PS_HARDWARE_ISA_PORTABLE;
    assert_ok(ps_settings_read(c, true, &s));
    assert_int_equal(ps_settings_use_hardware(&s, c, &hw), PS_ENOSYS);
    assert_non_null(strstr(ps_last_error(), "train.isa = avx2, but the processor of 'laptop, 16 GB, no GPU' goes up to "
                                            "portable"));
    ps_config_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_arrives),
        cmocka_unit_test(memory_arrives),
        cmocka_unit_test(updates_may_be_early),
        cmocka_unit_test(save_buffer_is_for_runs_that_save),
        cmocka_unit_test(loss_scale_arrives),
        cmocka_unit_test(schedule_arrives),
        cmocka_unit_test(communication_arrives),
        cmocka_unit_test(hardware_arrives),
        cmocka_unit_test(shares_of_the_machine_arrive),
        cmocka_unit_test(described_processor_arrives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
