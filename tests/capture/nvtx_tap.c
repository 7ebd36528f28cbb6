// A minimal NVTX tool: NVTX_INJECTION64_PATH loads it, and each call becomes one line of NVTX_TAP_OUT.
// Fields are separated by tabs; names are the last field. The NVTX headers give types and callback indices.
#include <nvtx3/nvToolsExt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t last_id;

static uintptr_t thread_number(void) { return (uintptr_t)pthread_self(); }

// Handles are the addresses of kept copies, so that a handle is its own name.
static nvtxDomainHandle_t domain_create(const char *name) { return (nvtxDomainHandle_t)strdup(name); }
static nvtxStringHandle_t register_string(nvtxDomainHandle_t domain, const char *text) {
    (void)domain;
    return (nvtxStringHandle_t)strdup(text);
}

static void name_category(nvtxDomainHandle_t domain, uint32_t category, const char *name) {
    pthread_mutex_lock(&lock);
    fprintf(out, "category\t%s\t%u\t%s\n", (const char *)domain, category, name);
    pthread_mutex_unlock(&lock);
}

static void event(const char *what, nvtxDomainHandle_t domain, uint64_t id, const nvtxEventAttributes_t *a) {
    pthread_mutex_lock(&lock);
    fprintf(out, "%s\t%s\t%" PRIuPTR "\t%" PRIu64 "\t%u\t%d\t%" PRId64 "\t%s\n", what, (const char *)domain,
            thread_number(), id, a->category, a->payloadType, (int64_t)a->payload.llValue,
            (const char *)a->message.registered);
    pthread_mutex_unlock(&lock);
}

static void ended(const char *what, nvtxDomainHandle_t domain, uint64_t id) {
    pthread_mutex_lock(&lock);
    fprintf(out, "%s\t%s\t%" PRIuPTR "\t%" PRIu64 "\n", what, (const char *)domain, thread_number(), id);
    pthread_mutex_unlock(&lock);
}

static void mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *a) { event("mark", domain, 0, a); }
static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *a) {
    event("push", domain, 0, a);
    return 0;
}
static int pop(nvtxDomainHandle_t domain) {
    ended("pop", domain, 0);
    return 0;
}
static nvtxRangeId_t start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *a) {
    uint64_t id = __sync_add_and_fetch(&last_id, 1);
    event("start", domain, id, a);
    return id;
}
static void end(nvtxDomainHandle_t domain, nvtxRangeId_t id) { ended("end", domain, id); }

static void set(NvtxFunctionTable table, unsigned size, int index, void *function) {
    if ((unsigned)index < size && table[index]) *table[index] = (NvtxFunctionPointer)function;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
    const char *path = getenv("NVTX_TAP_OUT");
    out = path ? fopen(path, "w") : NULL;
    if (!out) return 0;
    setvbuf(out, NULL, _IOLBF, 0);
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table;
    unsigned size;
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
    set(table, size, NVTX_CBID_CORE2_DomainCreateA, domain_create);
    set(table, size, NVTX_CBID_CORE2_DomainRegisterStringA, register_string);
    set(table, size, NVTX_CBID_CORE2_DomainNameCategoryA, name_category);
    set(table, size, NVTX_CBID_CORE2_DomainMarkEx, mark);
    set(table, size, NVTX_CBID_CORE2_DomainRangePushEx, push);
    set(table, size, NVTX_CBID_CORE2_DomainRangePop, pop);
    set(table, size, NVTX_CBID_CORE2_DomainRangeStartEx, start);
    set(table, size, NVTX_CBID_CORE2_DomainRangeEnd, end);
    return 1;
}
