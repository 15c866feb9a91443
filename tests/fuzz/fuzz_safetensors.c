/* Any bytes as a safetensors file: open must return, and what it accepts must be readable to its
 * last byte.
 *
 * Each input is tried as it is, and with the header length set so that the header ends at the last
 * '}'; otherwise nearly every input would fail at that length. */
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors.h"

static volatile uint64_t sink;

static void read_bytes(const uint8_t *data, uint64_t len)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < len; i++) sum += data[i];
    sink += sum;
}

static void open_and_read(const uint8_t *data, size_t size)
{
    rvi_safetensors *s;
    rvi_blob blob;
    rv_error err = {0};
    rvi_blob_from_memory(&blob, data, size);
    if (rvi_safetensors_open_blob(&s, &blob, "fuzz", &err)) {
        if (s || !err.text[0]) abort();
        return;
    }
    for (size_t i = 0; i < rvi_safetensors_n_tensors(s); i++) {
        const rvi_tensor_view *t = rvi_safetensors_tensor_at(s, i);
        uint64_t n = rvi_qtypes[t->type].block_bytes;
        for (int k = 0; k < t->n_dims; k++) n *= t->shape[k];
        if (rvi_safetensors_tensor(s, t->name) != t || n != t->n_bytes) abort();
        read_bytes(t->data, t->n_bytes);
    }
    for (size_t i = 0; i < rvi_safetensors_n_raw(s); i++) {
        const rvi_raw_tensor *t = rvi_safetensors_raw_at(s, i);
        if (rvi_safetensors_raw(s, t->name) != t) abort();
        read_bytes(t->data, t->n_bytes);
    }
    rvi_safetensors_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    open_and_read(data, size);
    size_t end = size;
    while (end > 8 && data[end - 1] != '}') end--;
    if (end <= 8) return 0;
    uint8_t *copy = malloc(size);
    if (!copy) return 0;
    memcpy(copy, data, size);
    for (unsigned i = 0; i < 8; i++) copy[i] = (uint8_t)((uint64_t)(end - 8) >> (8 * i));
    open_and_read(copy, size);
    free(copy);
    return 0;
}
