/* Evaluate a value function in C, without a library: no Python, no daemon.
 *
 *     cc -O2 value.c -o value -lm
 *     ./value walk.model 0.5 1.0        one state, its numbers in the order of the model's variables
 *     mean 1.234567 std 0.123456 known 0.98
 *
 * The file is what `criticd fit` or `criticd snapshot` writes: one MessagePack map, arrays as maps with `shape` and `data`
 * (proto/README.md, "Snapshot"). A program on a device reads it once, and calls value() as often as it likes.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- MessagePack: what a model needs of it. Every step checks that the bytes are there. */

struct reader {
    const unsigned char *at, *end;
    int failed;
};

enum kind { NIL, BOOLEAN, NUMBER, TEXT, BINARY, ARRAY, MAP };

/* The head of a value: its number, or how many bytes, items or pairs follow. */
struct head {
    enum kind kind;
    double number;
    size_t count;
};

static uint64_t big_endian(struct reader *r, int bytes) {
    uint64_t value = 0;
    if (r->end - r->at < bytes) {
        r->failed = 1;
        return 0;
    }
    while (bytes-- > 0) value = value << 8 | *r->at++;
    return value;
}

static struct head head(struct reader *r) {
    struct head h = {NIL, 0.0, 0};
    unsigned tag = (unsigned)big_endian(r, 1);
    uint64_t bits;
    if (r->failed) return h;
    if (tag < 0x80 || tag >= 0xe0) {
        h.kind = NUMBER;
        h.number = tag < 0x80 ? (double)tag : (double)tag - 256.0;
    } else if (tag < 0x90) {
        h.kind = MAP, h.count = tag & 15;
    } else if (tag < 0xa0) {
        h.kind = ARRAY, h.count = tag & 15;
    } else if (tag < 0xc0) {
        h.kind = TEXT, h.count = tag & 31;
    } else {
        switch (tag) {
        case 0xc0: break;
        case 0xc2: case 0xc3: h.kind = BOOLEAN, h.number = tag & 1; break;
        case 0xc4: case 0xc5: case 0xc6: h.kind = BINARY, h.count = big_endian(r, 1 << (tag - 0xc4)); break;
        case 0xca: {
            uint32_t single = (uint32_t)big_endian(r, 4);
            float f;
            memcpy(&f, &single, 4);
            h.kind = NUMBER, h.number = f;
            break;
        }
        case 0xcb: bits = big_endian(r, 8), h.kind = NUMBER, memcpy(&h.number, &bits, 8); break;
        case 0xcc: case 0xcd: case 0xce: case 0xcf:
            h.kind = NUMBER, h.number = (double)big_endian(r, 1 << (tag - 0xcc));
            break;
        case 0xd0: h.kind = NUMBER, h.number = (int8_t)big_endian(r, 1); break;
        case 0xd1: h.kind = NUMBER, h.number = (int16_t)big_endian(r, 2); break;
        case 0xd2: h.kind = NUMBER, h.number = (int32_t)big_endian(r, 4); break;
        case 0xd3: h.kind = NUMBER, h.number = (double)(int64_t)big_endian(r, 8); break;
        case 0xd9: case 0xda: case 0xdb: h.kind = TEXT, h.count = big_endian(r, 1 << (tag - 0xd9)); break;
        case 0xdc: case 0xdd: h.kind = ARRAY, h.count = big_endian(r, 2 << (tag - 0xdc)); break;
        case 0xde: case 0xdf: h.kind = MAP, h.count = big_endian(r, 2 << (tag - 0xde)); break;
        default: r->failed = 1; /* extensions do not occur */
        }
    }
    /* Each item takes a byte at least. */
    if (h.count > (size_t)(r->end - r->at)) r->failed = 1;
    return h;
}

static void skip(struct reader *r, int depth) {
    struct head h = head(r);
    size_t i, items = h.kind == MAP ? 2 * h.count : h.kind == ARRAY ? h.count : 0;
    if (r->failed || depth > 16) {
        r->failed = 1;
    } else if (h.kind == TEXT || h.kind == BINARY) {
        r->at += h.count;
    } else {
        for (i = 0; i < items && !r->failed; i++) skip(r, depth + 1);
    }
}

/* A reader at the value of `key` in the map where `r` stands; failed if there is none. Keys are texts or bytes. */
static struct reader get(struct reader r, const char *key) {
    struct head map = head(&r);
    if (r.failed || map.kind != MAP) map.count = 0;
    while (map.count-- > 0) {
        struct head name = head(&r);
        const unsigned char *text = r.at;
        if (r.failed || (name.kind != TEXT && name.kind != BINARY)) break;
        r.at += name.count;
        if (name.count == strlen(key) && memcmp(text, key, name.count) == 0) return r;
        skip(&r, 0);
    }
    r.failed = 1;
    return r;
}

static double number(struct reader r) {
    struct head h = head(&r);
    return r.failed || h.kind != NUMBER ? NAN : h.number;
}

static int is_text(struct reader r, const char *text) {
    struct head h = head(&r);
    return !r.failed && h.kind == TEXT && h.count == strlen(text) && memcmp(r.at, text, h.count) == 0;
}

/* Numbers of 64 bits, row-major. */
struct array {
    double *values;
    size_t rows, columns, count;
};

static struct array array(struct reader map) {
    struct array found = {NULL, 1, 1, 0};
    struct reader shape = get(map, "shape"), data = get(map, "data");
    struct head axes, bytes;
    if (map.failed || shape.failed || data.failed || !is_text(get(map, "type"), "<f8")) return found;
    axes = head(&shape), bytes = head(&data);
    if (axes.kind != ARRAY || axes.count < 1 || axes.count > 2 || bytes.kind != BINARY || data.failed) return found;
    found.rows = (size_t)head(&shape).number;
    if (axes.count == 2) found.columns = (size_t)head(&shape).number;
    found.values = malloc(bytes.count ? bytes.count : 1);
    if (found.values == NULL || bytes.count / 8 != found.rows * found.columns) {
        fprintf(stderr, "an array does not fit its shape\n");
        exit(1);
    }
    found.count = bytes.count / 8;
    memcpy(found.values, data.at, bytes.count); /* on a little-endian machine */
    return found;
}

/* ---- the model */

struct model {
    struct array shift, scale, dictionary, weights, covariance, relevance, factors, level;
    double signal, bias, *period; /* (D,): 0 for a number on a line, -1 for a category */
    double (*bend)[3];            /* (D,): C, S and W of what is bent; S is 0 for the others */
    int matern52;
    struct array column_variances; /* (q,) */
    struct column *columns;        /* (q,): functions of the state that stand before the dictionary */
    struct model *mean;            /* whose value is added to V; none for 0 */
};

/* 'c' for the constant 1; 'l' for a variable, 'b' for one that stops at -4 and 4, 'o' and 's' for its cosine and sine. */
struct column {
    char function;
    size_t variable;
};

/* The columns of a kernel of `dim` variables; -1 where they are not understood. */
static int read_columns(struct model *m, struct reader columns, size_t dim) {
    size_t j, q = m->column_variances.values == NULL ? 0 : m->column_variances.count;
    if (columns.failed && q == 0) return 0;
    m->columns = calloc(q + 1, sizeof *m->columns);
    if (m->columns == NULL || columns.failed || head(&columns).count != q) return -1;
    for (j = 0; j < q; j++) {
        struct head word = head(&columns);
        char text[64] = "", *colon;
        if (columns.failed || word.kind != TEXT || word.count >= sizeof text) return -1;
        memcpy(text, columns.at, word.count);
        columns.at += word.count;
        colon = strchr(text, ':');
        m->columns[j].variable = colon == NULL ? 0 : (size_t)atol(colon + 1);
        if (strcmp(text, "constant") == 0) m->columns[j].function = 'c';
        else if (strncmp(text, "linear:", 7) == 0) m->columns[j].function = 'l';
        else if (strncmp(text, "bounded:", 8) == 0) m->columns[j].function = 'b';
        else if (strncmp(text, "cosine:", 7) == 0) m->columns[j].function = 'o';
        else if (strncmp(text, "sine:", 5) == 0) m->columns[j].function = 's';
        else return -1;
        if (m->columns[j].variable >= dim) return -1;
    }
    return 0;
}

/* f_j of a normalised state. */
static double column(const struct model *m, size_t j, const double *z) {
    size_t d = m->columns[j].variable;
    double turns = m->period[d] > 0 ? z[d] / m->period[d] : 0.0, angle = 2 * acos(-1.0) * (turns - round(turns));
    switch (m->columns[j].function) {
    case 'c': return 1.0;
    case 'l': return z[d];
    case 'b': return fmax(-4.0, fmin(z[d], 4.0));
    case 'o': return cos(angle);
    default: return sin(angle);
    }
}

static struct model read_model(struct reader file) {
    struct model m;
    struct reader kernel = get(file, "kernel"), inputs = get(file, "inputs"), kinds = get(kernel, "kinds");
    struct reader mean = get(file, "mean");
    size_t d, dim;
    m.shift = array(get(inputs, "shift")), m.scale = array(get(inputs, "scale"));
    m.dictionary = array(get(file, "dictionary")), m.weights = array(get(file, "weights"));
    m.covariance = array(get(file, "variance")); /* none: no deviation */
    m.relevance = array(get(kernel, "relevance")), m.factors = array(get(kernel, "factors"));
    m.level = array(get(file, "level")); /* added to V; none for 0 */
    m.signal = number(get(kernel, "signal_variance")), m.bias = number(get(kernel, "bias_variance"));
    m.matern52 = is_text(get(kernel, "profile"), "matern52");
    m.column_variances = array(get(kernel, "column_variances")), m.columns = NULL;
    dim = m.shift.count;
    if (dim == 0 || m.scale.count != dim || m.relevance.count != dim || m.dictionary.count != m.dictionary.rows * dim ||
        read_columns(&m, get(kernel, "columns"), dim) < 0 ||
        m.weights.rows != m.column_variances.count + m.dictionary.rows || isnan(m.signal) || isnan(m.bias)) {
        fprintf(stderr, "this is no model\n");
        exit(1);
    }
    m.period = calloc(dim, sizeof *m.period), m.bend = calloc(dim, sizeof *m.bend);
    if (!kinds.failed && m.period != NULL && m.bend != NULL && head(&kinds).count == dim) {
        for (d = 0; d < dim; d++) {
            struct head kind = head(&kinds);
            char text[256] = "";
            if (kinds.failed || kind.kind != TEXT) break;
            if (kind.count < sizeof text) memcpy(text, kinds.at, kind.count);
            if (strcmp(text, "category") == 0) m.period[d] = -1;
            if (strncmp(text, "periodic:", 9) == 0) m.period[d] = atof(text + 9);
            sscanf(text, "asinh:%lf:%lf:%lf", &m.bend[d][0], &m.bend[d][1], &m.bend[d][2]);
            kinds.at += kind.count;
        }
    }
    m.mean = mean.failed ? NULL : malloc(sizeof *m.mean);
    if (m.mean != NULL) *m.mean = read_model(mean);
    if (!mean.failed && (m.mean == NULL || m.mean->shift.count != dim)) {
        fprintf(stderr, "its mean is of other states\n");
        exit(1);
    }
    return m;
}

/* The coordinate of variable d, a number on a line, as the kernel sees it. */
static double line(const struct model *m, size_t d, double z) {
    const double *bend = m->bend[d];
    return bend[1] > 0 ? bend[2] * asinh((z - bend[0]) / bend[1]) : z;
}

/* k(a, b) of normalised states. */
static double covariance(const struct model *m, const double *a, const double *b) {
    double squared = 0.0, r;
    size_t d, k, dim = m->shift.count;
    for (d = 0; d < dim; d++) {
        double apart = a[d] - b[d];
        if (m->period[d] < 0) {
            squared += apart != 0 ? 2 * m->relevance.values[d] : 0.0;
        } else if (m->period[d] > 0) {
            double side = 2 * sin(acos(-1.0) * apart / m->period[d]);
            squared += m->relevance.values[d] * side * side;
        } else {
            apart = line(m, d, a[d]) - line(m, d, b[d]);
            squared += m->relevance.values[d] * apart * apart;
        }
    }
    for (k = 0; m->factors.values != NULL && k < m->factors.rows; k++) {
        double along = 0.0;
        for (d = 0; d < dim; d++)
            if (m->period[d] == 0) along += m->factors.values[k * dim + d] * (line(m, d, a[d]) - line(m, d, b[d]));
        squared += along * along;
    }
    r = sqrt(5 * squared);
    return m->bias + m->signal * (m->matern52 ? (1 + r + r * r / 3) * exp(-r) : exp(-squared / 2));
}

/* The mean (of the first reward) and the standard deviation of V at a state; NaN as deviation if the model has none. `k` and
 * `z` are memory for as many numbers as there are weights, in the model or its mean, and as a state has. */
static void value(const struct model *m, const double *state, double *k, double *z, double *mean, double *deviation) {
    size_t i, j, size = m->weights.rows, dim = m->shift.count, columns = m->column_variances.count;
    double variance = m->signal + m->bias, about = 0.0;
    if (m->mean != NULL) value(m->mean, state, k, z, &about, deviation);
    for (i = 0; i < dim; i++) z[i] = (state[i] - m->shift.values[i]) / m->scale.values[i];
    *mean = about + (m->level.count > 0 ? m->level.values[0] : 0.0);
    for (i = 0; i < size; i++) {
        if (i < columns) {
            double f = column(m, i, z), s = m->column_variances.values[i];
            k[i] = s * f, variance += s * f * f;
        } else {
            k[i] = covariance(m, z, m->dictionary.values + (i - columns) * dim);
        }
        *mean += k[i] * m->weights.values[i * m->weights.columns];
    }
    *deviation = NAN;
    if (m->covariance.values == NULL) return;
    for (i = 0; i < size; i++) {
        double sum = 0.0;
        for (j = 0; j < size; j++) sum += m->covariance.values[i * size + j] * k[j];
        variance -= k[i] * sum;
    }
    *deviation = sqrt(variance > 0 ? variance : 0);
}

int main(int count, char **words) {
    FILE *file = count > 1 ? fopen(words[1], "rb") : NULL;
    unsigned char *bytes;
    struct reader reader = {NULL, NULL, 0}, whole;
    struct model m, *each;
    double *state, *k, mean, deviation, known;
    size_t most = 1;
    long size;
    int d;
    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0) {
        fprintf(stderr, "usage: value MODEL NUMBER...\n");
        return 2;
    }
    rewind(file);
    bytes = malloc((size_t)size + 1);
    if (bytes == NULL || fread(bytes, 1, (size_t)size, file) != (size_t)size) return 1;
    fclose(file);
    reader.at = bytes, reader.end = bytes + size;
    whole = reader;
    skip(&whole, 0);
    if (whole.failed || whole.at != whole.end) {
        fprintf(stderr, "this file is not whole\n");
        return 1;
    }
    m = read_model(reader);
    if ((size_t)count - 2 != m.shift.count) {
        fprintf(stderr, "states of this model have %zu numbers\n", m.shift.count);
        return 2;
    }
    state = malloc(2 * m.shift.count * sizeof *state);
    for (each = &m; each != NULL; each = each->mean)
        if (each->weights.rows > most) most = each->weights.rows;
    k = malloc(most * sizeof *k);
    if (state == NULL || k == NULL) return 1;
    for (d = 0; d + 2 < count; d++) state[d] = atof(words[d + 2]);
    value(&m, state, k, state + m.shift.count, &mean, &deviation);
    /* How much of the signal's variance rows have removed; NaN where the model has no deviation. */
    known = 1 - deviation * deviation / m.signal;
    printf("mean %.9g std %.9g known %.9g\n", mean, deviation, known < 0 ? 0 : known);
    return 0;
}
