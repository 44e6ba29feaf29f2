/* `make fuzz` builds and runs it.

   The input is a file. Whatever is read must lie inside it, be found under its names, and come back from a table made of it.
   tests/test_safetensors.c replays the corpus. */
#if !defined(HETRAIN_FUZZ_REPLAY) && !defined(HETRAIN_FUZZ_LINKED)
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_FILES_IMPLEMENTATION
#endif
#include "fuzz.h"
#include "hetrain_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
#ifndef HETRAIN_FUZZ_REPLAY
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
#endif

/* The table written and read again is the same table, its tensors in the writer's order. */
static void fuzz_again(const het_safetensors *file)
{
    het_safetensors *made = NULL, *back = NULL;
    het_error error;
    fuzz_bytes b;
    het_writer to;
    het_reader from;
    int64_t i;
    if (file->size > 1 << 20) return;
    fuzz_check(het_safetensors_make(file->tensor, file->tensors, file->pair, file->pairs, NULL, &made, &error) == HET_OK,
               "what was read cannot be made");
    to = fuzz_writer(&b);
    fuzz_check(het_safetensors_write(made, &to, &error) == HET_OK && b.size == made->data && b.size % 8 == 0, "the header has another size");
    b.data = (char *)realloc(b.data, (size_t)made->size);
    if (b.data == NULL) abort();
    memset(b.data + b.size, 0, (size_t)made->size - b.size); /* the elements */
    b.size = (size_t)made->size;
    from = fuzz_reader(&b);
    fuzz_check(het_safetensors_read(&from, 0, NULL, &back, &error) == HET_OK, "what was written cannot be read");
    fuzz_check(back->tensors == file->tensors && back->pairs == file->pairs, "something was lost");
    for (i = 0; i < back->tensors; i++) {
        const het_safetensor *t = &back->tensor[i], *s = het_safetensors_find(file, t->name, t->name_length);
        fuzz_check(s != NULL && s->element == t->element && s->rank == t->rank && memcmp(s->shape, t->shape, sizeof s->shape) == 0 &&
                   s->end - s->begin == t->end - t->begin, "a tensor changed");
    }
    free(b.data);
    het_safetensors_free(made);
    het_safetensors_free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    het_safetensors *file = NULL;
    het_error error;
    fuzz_bytes b;
    het_reader from;
    uint64_t end = 0;
    int64_t i;
    b.data = fuzz_copy(data, size);
    b.size = size;
    from = fuzz_reader(&b);
    error.text[0] = 0;
    if (het_safetensors_read(&from, 0, NULL, &file, &error) != HET_OK) {
        fuzz_check(file == NULL && strncmp(error.text, "input: ", 7) == 0, "an error without a name");
        free(b.data);
        return 0;
    }
    fuzz_check(file->size == size, "another size");
    for (i = 0; i < file->tensors; i++) {
        const het_safetensor *t = &file->tensor[i];
        float value[3];
        fuzz_check(t->begin == end && t->end >= end && t->name[t->name_length] == 0 && t->at < file->data, "a tensor outside the data");
        fuzz_check(het_safetensors_find(file, t->name, t->name_length) == t, "a name is not found");
        end = t->end;
        if ((t->end - t->begin) * 8 / (uint64_t)het_element_bits(t->element) >= 3)
            fuzz_check(het_safetensors_get(file, &from, t, 0, 3, value, NULL) == (t->element == HET_ELEMENT_F32 || t->element == HET_ELEMENT_F16 ||
                       t->element == HET_ELEMENT_BF16 ? HET_OK : HET_ERR_UNSUPPORTED), "elements cannot be read");
    }
    fuzz_check(file->data + end == size, "bytes behind the data");
    fuzz_again(file);
    het_safetensors_free(file);
    free(b.data);
    return 0;
}

#ifndef HETRAIN_FUZZ_REPLAY
/* Changes the JSON or the rest and puts the length of the JSON right, else nearly every change ends at the first rule. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    size_t length = 0, tail, grown;
    uint8_t *text;
    int i;
    if (size < 8 || seed % 16 == 0) return LLVMFuzzerMutate(data, size, most);
    for (i = 7; i >= 0; i--) length = length << 8 | data[i];
    if (length > size - 8) length = size - 8;
    tail = size - 8 - length;
    if (seed % 16 == 1) { /* as many bytes of data as the tensors want, perhaps */
        tail = (seed >> 8) % 64;
        if (8 + length + tail > most) return size;
        if (8 + length + tail > size) memset(data + size, 0, 8 + length + tail - size);
        return 8 + length + tail;
    }
    text = (uint8_t *)malloc(most + 1);
    if (text == NULL) return size;
    memcpy(text, data + 8, length);
    grown = LLVMFuzzerMutate(text, length, most - 8 - tail > length ? most - 8 - tail : length);
    memmove(data + 8 + grown, data + 8 + length, tail);
    memcpy(data + 8, text, grown);
    for (i = 0; i < 8; i++) data[i] = (uint8_t)(grown >> 8 * i);
    free(text);
    return 8 + grown + tail;
}
#endif
