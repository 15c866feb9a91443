/* doctor_gpu.h - the GPU, as `doctor` sees it. */
#ifndef RVI_CLI_DOCTOR_GPU_H
#define RVI_CLI_DOCTOR_GPU_H

#include "cli/cli.h"
#include "cli/expect.h"

typedef struct cli_gpu {
    char *text;            /* JSON, what rv_runtime_describe says of a runtime there; or NULL */
    const rvi_json *card;  /* its member gpu; NULL: there is none */
    char why[544];         /* there is none */
    char *placing;         /* JSON of rv_model_describe_placement, or NULL */
    const rvi_json *place; /* the same */
} cli_gpu;

/* Measures the card, and how it would share the model (may be NULL) with the CPU. device: as the
 * user gave it, NULL: not at all; one that was asked for and cannot be used is an error, otherwise
 * `why` says what is missing. */
rv_status cli_gpu_look(const cli *c, const char *device, const rv_model *m, cli_gpu *out,
                       rvi_arena *arena, rv_error *err) RVI_MUST_CHECK;
void cli_gpu_deinit(cli_gpu *g);
void cli_gpu_write(const cli_gpu *g, rvi_buf *out);
/* What to expect of a model there. */
void cli_gpu_write_model(const cli_gpu *g, const cli_load *l, rv_kv_type kv, int n_prompt,
                         rvi_buf *out);
/* Members of a JSON object, with a comma before them; l may be NULL. */
void cli_gpu_write_json(const cli_gpu *g, const cli_load *l, rv_kv_type kv, int n_prompt,
                        rvi_buf *out);

#endif
