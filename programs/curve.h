/* A line chart of training and validation loss as a self-contained SVG file. */
#ifndef PROGRAMS_CURVE_H
#define PROGRAMS_CURVE_H

typedef struct curve { double *step, *loss; size_t count, capacity; } curve;

static inline int curve_add(curve *c, double step, double loss) {
    if (c->count == c->capacity) {
        size_t capacity = c->capacity > 0 ? 2 * c->capacity : 1024;
        double *a = (double *)realloc(c->step, capacity * sizeof(double)), *b;
        if (a == NULL) return 0;
        c->step = a;
        b = (double *)realloc(c->loss, capacity * sizeof(double));
        if (b == NULL) return 0;
        c->loss = b, c->capacity = capacity;
    }
    c->step[c->count] = step, c->loss[c->count] = loss;
    c->count++;
    return 1;
}

static inline void curve_free(curve *c) {
    free(c->step);
    free(c->loss);
    memset(c, 0, sizeof *c);
}

/* 1, 2 or 5 times a power of ten, so that [0, range] gets at most `most` ticks. */
static inline double curve_tick(double range, double most) {
    double rough = range / most, power = pow(10, floor(log10(rough))), factor = rough / power;
    return power * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
}

typedef struct chart { FILE *file; double left, top, width, height, x_low, x_high, y_low, y_high; } chart;

static inline double chart_x(const chart *c, double step) { return c->left + c->width * (step - c->x_low) / (c->x_high - c->x_low); }
static inline double chart_y(const chart *c, double loss) { return c->top + c->height * (c->y_high - loss) / (c->y_high - c->y_low); }

/* At most `points` points: longer curves are averaged over equal runs of steps. One alone is a dot. */
static inline void chart_line(const chart *c, const curve *data, size_t points, const char *colour, const char *width) {
    size_t run = (data->count + points - 1) / points, i, j, end;
    if (data->count == 1)
        fprintf(c->file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", chart_x(c, data->step[0]), chart_y(c, data->loss[0]), colour);
    if (data->count < 2) return;
    fprintf(c->file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" stroke-linejoin=\"round\" points=\"", colour, width);
    for (i = 0; i < data->count; i = end) {
        double step = 0, loss = 0;
        end = i + run < data->count ? i + run : data->count;
        for (j = i; j < end; j++) step += data->step[j], loss += data->loss[j];
        fprintf(c->file, "%.1f,%.1f ", chart_x(c, step / (double)(end - i)), chart_y(c, loss / (double)(end - i)));
    }
    fprintf(c->file, "\"/>\n");
}

static inline void chart_axes(const chart *c) {
    double step = curve_tick(c->x_high - c->x_low, 9), loss = curve_tick(c->y_high - c->y_low, 9), at;
    for (at = ceil(c->x_low / step) * step; at <= c->x_high * 1.000001; at += step) {
        fprintf(c->file, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e4e4e4\"/>", chart_x(c, at), chart_x(c, at), c->top,
                c->top + c->height);
        fprintf(c->file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.10g</text>\n", chart_x(c, at), c->top + c->height + 20, at);
    }
    for (at = c->y_low; at <= c->y_high + loss * 0.001; at += loss) {
        fprintf(c->file, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e4e4e4\"/>", c->left, c->left + c->width, chart_y(c, at),
                chart_y(c, at));
        fprintf(c->file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n", c->left - 8, chart_y(c, at) + 4.5,
                fabs(at) < loss * 1e-6 ? 0 : at);
    }
    fprintf(c->file, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" stroke=\"#555\"/>\n", c->left, c->top, c->width,
            c->height);
    fprintf(c->file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">optimizer step</text>\n", c->left + c->width / 2, c->top + c->height + 42);
    fprintf(c->file, "<text transform=\"translate(%.1f %.1f) rotate(-90)\" text-anchor=\"middle\">loss (nats a token)</text>\n", c->left - 74,
            c->top + c->height / 2);
}

/* The first `most` letters; what is left out shows as dots. */
static inline void chart_text(FILE *file, const char *text, int most) {
    for (; *text != 0; text++) {
        if (((unsigned char)*text & 0xC0u) != 0x80u && most-- == 0) { fputs("...", file); return; }
        if (*text == '<') fputs("&lt;", file);
        else if (*text == '&') fputs("&amp;", file);
        else fputc((unsigned char)*text < 32 ? ' ' : *text, file);
    }
}

/* "training, last 2.3456" */
static inline int chart_name(char to[64], const char *name, const curve *data) {
    const double last = data->count > 0 ? data->loss[data->count - 1] : 0;
    return snprintf(to, 64, fabs(last) < 1e6 ? "%s, last %.4f" : "%s, last %.4g", name, last);
}

/* Of a column of texts of at most `letters`. */
static inline void chart_legend(const chart *c, int row, const char *colour, const char *name, const curve *data, int letters) {
    double x = c->left + c->width - 44 - 7.6 * letters, y = c->top + 22 + 20 * row;
    char text[64];
    if (data->count == 0) return;
    chart_name(text, name, data);
    fprintf(c->file, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"3\"/>", x, x + 24, y - 4, y - 4, colour);
    fprintf(c->file, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 32, y, text);
}

/* Returns 1 if everything was written. */
static inline int curve_svg(FILE *file, const char *title, const curve *training, const curve *validation) {
    const char *blue = "#2166ac", *orange = "#d6604d";
    double high = -HUGE_VAL, low = HUGE_VAL, least, tick;
    chart c;
    char text[64];
    int letters;
    size_t i;
    for (i = 0; i < training->count; i++) high = fmax(high, training->loss[i]), low = fmin(low, training->loss[i]);
    for (i = 0; i < validation->count; i++) high = fmax(high, validation->loss[i]), low = fmin(low, validation->loss[i]);
    if (!(low <= high)) low = 0, high = 1;
    least = 1e-9 * fmax(1, fmax(fabs(low), fabs(high))); /* a smaller tick added to a loss leaves it as it is */
    tick = curve_tick(high - low > least ? high - low : fmax(1, 1e6 * least), 9);
    c.file = file, c.left = 92, c.top = 44, c.width = 774, c.height = 400;
    c.x_low = 0, c.x_high = training->count > 0 ? fmax(1, training->step[training->count - 1]) : 1;
    c.y_low = floor(low / tick) * tick, c.y_high = fmax(ceil(high / tick) * tick, c.y_low + tick);
    fprintf(file, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 890 500\" width=\"890\" height=\"500\" "
                  "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#222\">\n");
    fprintf(file, "<rect width=\"890\" height=\"500\" fill=\"white\"/>\n<text x=\"92\" y=\"28\" font-size=\"15\">");
    chart_text(file, title, 78);
    fprintf(file, "</text>\n");
    chart_axes(&c);
    chart_line(&c, training, 800, "#b7cfe6", "1");
    chart_line(&c, training, 60, blue, "2");
    chart_line(&c, validation, 800, orange, "2.5");
    letters = chart_name(text, "training", training);
    if (validation->count > 0 && chart_name(text, "validation", validation) > letters) letters = (int)strlen(text);
    chart_legend(&c, 0, blue, "training", training, letters);
    chart_legend(&c, 1, orange, "validation", validation, letters);
    fprintf(file, "</svg>\n");
    return !ferror(file);
}

#endif
