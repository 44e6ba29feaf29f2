/* Units of one modality, for examples/modalities.c: MLPs over the rows of their kind, images or text, that hand the others' on. A micro-batch is one
   sequence: first an image, of tokens from LEVELS on, then text, of tokens below. */
#ifndef MODALITY_UNIT_H
#define MODALITY_UNIT_H

#include "hetrain.h"

#include <string.h>

enum { IMAGE, TEXT, KINDS, LEVELS = 32, UNITS = 7 };

/* Calls the MLP with these rows alone, as if they were all there is, one granule. */
static het_result of_modality(const het_unit_call *c, het_result (*call)(const het_unit_call *)) {
    const int32_t *token = c->view->token + c->view->row_begin;
    int64_t images = 0, begin, bounds[2];
    het_view view = *c->view;
    het_unit_call own = *c;
    while (images < c->rows && token[images] >= LEVELS) images++;
    begin = *(const int *)c->unit->settings == IMAGE ? 0 : images, own.rows = begin == 0 ? images : c->rows - images;
    bounds[0] = view.row_begin = c->view->row_begin + begin, bounds[1] = view.row_end = view.row_begin + own.rows;
    view.granule_start = view.host_granule_start = bounds, view.granules = view.granule_end = 1, view.granule_begin = 0, own.view = &view;
    begin *= c->unit->model->width;
    if (c->in[0] != NULL) own.in[0] += begin;
    if (c->out[0] != NULL) own.out[0] += begin;
    if (c->d_in[0] != NULL) own.d_in[0] += begin;
    if (c->d_out[0] != NULL) own.d_out[0] += begin;
    return call(&own);
}
static size_t stream(const het_unit_call *c) { return (size_t)(c->rows * c->unit->model->width) * sizeof(float); }
static het_result modality_describe(const het_unit *unit, het_unit_info *info) { return het_unit_mlp()->describe(unit, info); }
static het_result modality_forward(const het_unit_call *c) {
    memcpy(c->out[0], c->in[0], stream(c));
    return of_modality(c, het_unit_mlp()->forward);
}
static het_result modality_backward_input(const het_unit_call *c) {
    memcpy(c->d_in[0], c->d_out[0], stream(c));
    return of_modality(c, het_unit_mlp()->backward_input);
}
static het_result modality_backward_weight(const het_unit_call *c) { return of_modality(c, het_unit_mlp()->backward_weight); }
static const het_unit_iface modality_unit = { HETRAIN_UNIT_VERSION, "modality", modality_describe, modality_forward, modality_backward_input,
                                              modality_backward_weight };

/* embed, two units for images, attention from text to images, two units for text, head. */
static het_result describe(het_desc *desc, int64_t context, het_unit units[UNITS], het_error *error) {
    static const int modality[KINDS] = { IMAGE, TEXT };
    het_unit all[10];
    int64_t count = 0, i, k = 0;
    het_result result;
    desc->model.family = HET_LLAMA, desc->model.layers = 4, desc->model.width = 48, desc->model.mlp_width = 1024, desc->model.context = context;
    desc->model.vocab = 2 * LEVELS, desc->units = units, desc->unit_count = UNITS;
    result = het_model_complete(&desc->model, error);
    if (result == HET_OK) result = het_model_units(&desc->model, all, 10, &count, error);
    for (i = 0; i < count; i++) {
        if (all[i].iface == het_unit_attention() && all[i].layer != 2) continue;
        units[k] = all[i], units[k].model = NULL;
        if (all[i].iface == het_unit_mlp()) units[k].iface = &modality_unit, units[k].settings = &modality[all[i].layer < 2 ? IMAGE : TEXT];
        k++;
    }
    return result;
}

#endif
