/* event_file.h - what TensorBoard shows: the lines of metrics.jsonl as an event file in the run's folder,
 * events.out.tfevents.<seconds>.<host>.<process>.pstar.
 *
 * The file is a sequence of TFRecords, each with one tensorflow.Event in protobuf's encoding:
 *
 *     length        8 bytes, little-endian
 *     its checksum  4 bytes, masked CRC-32C
 *     Event         `length` bytes: wall_time, step, and file_version | session_log | summary
 *     its checksum  4 bytes, masked CRC-32C
 *
 * Numbers are scalars with the tags of transformers' Trainer where it has them (train/loss, train/learning_rate,
 * train/grad_norm, eval/loss), texts those of the text plugin. An event file has 32-bit floats; metrics.jsonl has all
 * digits. A record that a crash has cut is at the end; readers wait for the rest of it, and go on with the next file.
 *
 * Formats: tensorflow/core/lib/io/record_writer.h; tensorflow/core/util/event.proto;
 * tensorflow/core/framework/summary.proto. */
#ifndef PSTAR_EVENT_FILE_H
#define PSTAR_EVENT_FILE_H

#include <jansson.h>

#include "client.h"

typedef struct event_file event_file;

/* Begin a file in `folder`; it is created with its first event. Files that earlier processes of the run left keep their
 * events of steps 1 .. last_step, as metrics.jsonl does. With last_step > 0 a session begins after it, so that a reader
 * that has later steps already drops them. PS_EIO. */
PS_NODISCARD ps_status event_file_open(const char *folder, int64_t last_step, event_file **out);

/* Append all values of a line of metrics.jsonl, an object with "step". PS_EIO: they wait, as log_file.h has it; but a
 * file that cannot be created begins with the first line after that for which it can. */
PS_NODISCARD ps_status event_file_put(event_file *f, json_t *line);

PS_NODISCARD ps_status event_file_flush(event_file *f); /* PS_EIO when what waits still cannot be written */

void event_file_close(event_file *f); /* NULL is accepted */

/* Of all event files of pstar in the folder, drop the events of steps after last_step; 0: remove the files. PS_EIO. */
PS_NODISCARD ps_status event_file_cut_all(const char *folder, int64_t last_step);

#endif
