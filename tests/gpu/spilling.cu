// A kernel that wants more registers than two blocks of 1024 threads leave it: cuda/'s options must refuse it.
__global__ void __launch_bounds__(1024, 2) spilling(float* x) {
    float a[64];
    for (int i = 0; i < 64; ++i) a[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < 64; ++i)
        for (int j = 0; j < 64; ++j) a[i] = fmaf(a[j], a[i], x[j]);
    for (int i = 0; i < 64; ++i) x[i * 1024 + threadIdx.x] = a[i];
}
