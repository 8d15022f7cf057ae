/* torch_zip_format.h - shared by the reader and the writer of torch.save's zip files: PKWARE APPNOTE 6.3.10, sections
 * 4.3 and 4.5.3. Little-endian. A 32-bit size or offset of all ones means that the value is in the zip64 field. */
#ifndef PS_WEIGHTS_TORCH_ZIP_FORMAT_H
#define PS_WEIGHTS_TORCH_ZIP_FORMAT_H

#include <stdint.h>

/* bytes of each structure, without the names and extra fields after it */
#define ZIP_LOCAL_BYTES ((int64_t)30)
#define ZIP_ENTRY_BYTES ((int64_t)46)
#define ZIP_END64_BYTES ((int64_t)56)
#define ZIP_LOCATOR_BYTES ((int64_t)20)
#define ZIP_END_BYTES ((int64_t)22)

#define ZIP_SIGNATURE_LOCAL 0x04034b50u
#define ZIP_SIGNATURE_ENTRY 0x02014b50u
#define ZIP_SIGNATURE_END64 0x06064b50u
#define ZIP_SIGNATURE_LOCATOR 0x07064b50u
#define ZIP_SIGNATURE_END 0x06054b50u

#define ZIP_EXTRA_ZIP64 1u

/* Larger directories are refused: a record needs about 60 bytes of it, and a model has some thousand records. */
#define ZIP_DIRECTORY_BYTES_MAX ((int64_t)64 << 20)

#endif
