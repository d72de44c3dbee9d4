// The table of this instruction set, from the kernels above. Index: tensor::DType.

constexpr KernelTable make_table(const char* name) {
  KernelTable t{};
  t.name = name;
  t.limits = {read_all, multiply_bytes, multiply_floats};
  t.max_tile = kMaxTile;
  using D = tensor::DType;
  const auto at = [](D type) { return static_cast<int>(type); };
  t.int8_kernels[at(D::q4_0)] = int8_kernel<Q4_0>("q4_0 x int8/32");
  t.int8_kernels[at(D::q4_1)] = int8_kernel<Q4_1>("q4_1 x int8/32");
  t.int8_kernels[at(D::q5_0)] = int8_kernel<Q5_0>("q5_0 x int8/32");
  t.int8_kernels[at(D::q5_1)] = int8_kernel<Q5_1>("q5_1 x int8/32");
  t.int8_kernels[at(D::q8_0)] = int8_kernel<Q8_0>("q8_0 x int8/32");
  t.int8_kernels[at(D::iq4_nl)] = int8_kernel<Iq4Nl>("iq4_nl x int8/32");
  t.int8_kernels[at(D::mxfp4)] = int8_kernel<Mxfp4>("mxfp4 x int8/32");
  t.int8_kernels[at(D::q2_k)] = int8_kernel<Q2K>("q2_k x int8/256");
  t.int8_kernels[at(D::q3_k)] = int8_kernel<Q3K>("q3_k x int8/256");
  t.int8_kernels[at(D::q4_k)] = int8_kernel<Q4K>("q4_k x int8/256");
  t.int8_kernels[at(D::q5_k)] = int8_kernel<Q5K>("q5_k x int8/256");
  t.int8_kernels[at(D::q6_k)] = int8_kernel<Q6K>("q6_k x int8/256");
  t.int8_kernels[at(D::iq4_xs)] = int8_kernel<Iq4Xs>("iq4_xs x int8/256");
  for (const D type : {D::q4_0, D::q4_1, D::q5_0, D::q5_1, D::q8_0, D::iq4_nl, D::mxfp4, D::q2_k, D::q3_k, D::q4_k,
                       D::q5_k, D::q6_k, D::iq4_xs}) {
    t.float_kernels[at(type)] = float_kernel<void>("dequantised x f32");
  }
  t.int8_kernels[at(D::mlx_2)] = int8_kernel<MlxAffine<2>>("mlx2 x int8/32");
  t.int8_kernels[at(D::mlx_3)] = int8_kernel<MlxAffine<3>>("mlx3 x int8/32");
  t.int8_kernels[at(D::mlx_4)] = int8_kernel<MlxAffine<4>>("mlx4 x int8/32");
  t.int8_kernels[at(D::mlx_5)] = int8_kernel<MlxAffine<5>>("mlx5 x int8/32");
  t.int8_kernels[at(D::mlx_6)] = int8_kernel<MlxAffine<6>>("mlx6 x int8/32");
  t.int8_kernels[at(D::mlx_8)] = int8_kernel<MlxAffine<8>>("mlx8 x int8/32");
  t.int8_kernels[at(D::mlx_mxfp4)] = int8_kernel<MlxMxfp4>("mlx-mxfp4 x int8/32");
  t.float_kernels[at(D::mlx_2)] = float_kernel<MlxAffine<2>>("mlx2 x f32");
  t.float_kernels[at(D::mlx_3)] = float_kernel<MlxAffine<3>>("mlx3 x f32");
  t.float_kernels[at(D::mlx_4)] = float_kernel<MlxAffine<4>>("mlx4 x f32");
  t.float_kernels[at(D::mlx_5)] = float_kernel<MlxAffine<5>>("mlx5 x f32");
  t.float_kernels[at(D::mlx_6)] = float_kernel<MlxAffine<6>>("mlx6 x f32");
  t.float_kernels[at(D::mlx_8)] = float_kernel<MlxAffine<8>>("mlx8 x f32");
  t.float_kernels[at(D::mlx_mxfp4)] = float_kernel<MlxMxfp4>("mlx-mxfp4 x f32");
  t.float_kernels[at(D::f32)] = float_kernel<F32>("f32 x f32");
  t.float_kernels[at(D::f16)] = float_kernel<F16>("f16 x f32");
  t.float_kernels[at(D::bf16)] = float_kernel<Bf16>("bf16 x f32");

  t.quantise32 = quantise32_row;
  t.quantise256 = quantise256_row;
  t.rms_norm = rms_norm_row;
  t.layer_norm = layer_norm_row;
  t.rope = rope_head;
  t.add = add_row;
  t.add_scaled = add_scaled_row;
  t.scale = scale_row;
  t.softcap = softcap_row;
  t.gate = gate_row;
  t.block_maxima = block_maxima;
  t.append_key = append_key;
  t.append_value = append_value;
  t.attend = attend;
  t.merge = merge;
  t.finish = finish;
  t.convolve = convolve;
  t.l2_norm = l2_norm;
  t.delta_gates = delta_gates;
  t.delta_scan = delta_scan;
  t.multiply_sigmoid = multiply_sigmoid;
  return t;
}
