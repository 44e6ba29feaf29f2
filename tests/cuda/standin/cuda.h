/* A stand-in for the part of the CUDA driver that hetrain_cuda.cu asks for by name: green contexts, as CUDA 12.5 declares them. cuda_runtime.h
   says what it is for. */
#ifndef STANDIN_CUDA_H
#define STANDIN_CUDA_H

typedef int CUresult, CUdevice; /* cudaError_t and its values */
typedef struct CUstream_st *CUstream;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef enum CUdevResourceType { CU_DEV_RESOURCE_TYPE_INVALID = 0, CU_DEV_RESOURCE_TYPE_SM = 1 } CUdevResourceType;
typedef struct CUdevResource {
    CUdevResourceType type;
    unsigned split, first; /* of which split, 0: of none; its first multiprocessor */
    struct { unsigned smCount; } sm;
} CUdevResource;
enum { CU_STREAM_NON_BLOCKING = 1, CU_GREEN_CTX_DEFAULT_STREAM = 1 };

#ifdef __cplusplus
extern "C" {
#endif
CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type);
CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned *groups, const CUdevResource *input, CUdevResource *remaining, unsigned flags,
                                     unsigned least);
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *made, CUdevResource *resources, unsigned count);
CUresult cuGreenCtxCreate(CUgreenCtx *made, CUdevResourceDesc chosen, CUdevice device, unsigned flags);
CUresult cuGreenCtxDestroy(CUgreenCtx part);
CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx part, unsigned flags, int priority);
CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *part);
CUresult cuGreenCtxGetDevResource(CUgreenCtx part, CUdevResource *resource, CUdevResourceType type);
#ifdef __cplusplus
}
#endif
#endif
