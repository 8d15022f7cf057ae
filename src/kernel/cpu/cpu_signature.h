/* cpu_signature.h - which processor, system and library compute products here. */
#ifndef PS_KERNEL_CPU_CPU_SIGNATURE_H
#define PS_KERNEL_CPU_CPU_SIGNATURE_H

#define PS_CPU_SIGNATURE_MAX 768

/* What decides how products are computed here, as text: the processor's vendor, model and features, what the system and the environment
 * (ONEDNN_MAX_CPU_ISA) allow, and the version of oneDNN. */
void ps_cpu_signature(char out[PS_CPU_SIGNATURE_MAX]);

#endif
