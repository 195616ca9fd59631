"""Figures of real reports, written down from their text (with a pager and grep), never from what the parser gave."""

from __future__ import annotations

from typing import Any

PYNQ = {"lut": 53200, "ff": 106400, "dsp": 220, "bram18": 280}
SMALL = {"lut": 14400, "ff": 28800, "dsp": 66, "bram18": 100}
VU9P = {"lut": 1182240, "ff": 2364480, "dsp": 6840, "bram18": 4320, "uram": 960}
KU115 = {"lut": 663360, "ff": 1326720, "dsp": 5520, "bram18": 4320}
U250 = {"lut": 1728000, "ff": 3456000, "dsp": 12288, "bram18": 5376, "uram": 1280}
U50 = {"lut": 871680, "ff": 1743360, "dsp": 5952, "bram18": 2688, "uram": 640}
U55C = {"lut": 1303680, "ff": 2607360, "dsp": 9024, "bram18": 4032, "uram": 960}
VU11P = {"lut": 1296000, "ff": 2592000, "dsp": 9216, "bram18": 4032, "uram": 960}
ZU7EV = {"lut": 230400, "ff": 460800, "dsp": 1728, "bram18": 624, "uram": 96}


def used(lut: float, ff: float, dsp: float | None, bram18: float | None, uram: float | None = None) -> dict[str, Any]:
    return {"lut": lut, "ff": ff, "dsp": dsp, "bram18": bram18, "uram": uram}


def hls(
    cycles: tuple[int | None, int | None],
    interval: tuple[int | None, int | None],
    clock: tuple[float, float, float] | None,
    ns: tuple[float | None, float | None] = (None, None),
) -> dict[str, Any]:
    target, estimate, uncertainty = clock or (None, None, None)
    return {
        "latency_cycles_min": cycles[0],
        "latency_cycles_max": cycles[1],
        "interval_cycles_min": interval[0],
        "interval_cycles_max": interval[1],
        "clock_target_ns": target,
        "clock_estimate_ns": estimate,
        "clock_uncertainty_ns": uncertainty,
        "latency_ns_min": ns[0],
        "latency_ns_max": ns[1],
    }


def vivado(
    lut: int, logic: int, memory: int, ff: int, carry: int | None, tiles: float, ram36: int, ram18: int, dsp: int
):  # type: ignore[no-untyped-def]
    return {
        "lut": lut,
        "lut_logic": logic,
        "lut_memory": memory,
        "ff": ff,
        "carry": carry,
        "bram18": 2 * tiles,
        "ramb36": ram36,
        "ramb18": ram18,
        "dsp": dsp,
    }


GOLDEN: dict[str, dict[str, Any]] = {
    # Vivado HLS 2018.2, the old layout
    "2018.2/hls4ml_galapagos/myproject_csynth.rpt": {
        "tool": "Vivado HLS",
        "version": "2018.2",
        "part": "xcku115-flva1517-2-e",
        "date": "2019-03-31T23:52:47",
        "top": "myproject",
        "stage": "csynth",
        "modules": 4,
        "used": used(21809, 43219, 792, 18),
        "available": KU115,
        "available_slr": {"lut": 331680, "ff": 663360, "dsp": 2760, "bram18": 2160},
        "timing": hls((14, 14), (1, 1), (5.0, 4.168, 0.62)),
        "row": ("grp_conv_1d_0_0_0_0_fu_36", {"lut": 9051, "ff": 26679, "dsp": 504}, {"latency_cycles_max": 3}),
    },
    "2018.2/hls4ml_galapagos/relu_csynth.xml": {
        "tool": "Vivado HLS",
        "version": "2018.2",
        "part": "xcku115-flva1517-2-e",
        "date": None,
        "top": "relu",
        "used": used(612, 0, 0, 0),
        "available": KU115,
        "timing": hls((0, 0), (1, 1), (5.0, 1.602, 0.62)),
    },
    "2018.2/hls4ml_galapagos/csynth.xml": {
        "top": "myproject_galapagos",
        "used": used(43343, 44641, 792, 18),
        "available": KU115,
        "timing": hls((115, 115), (116, 116), (5.0, 4.312, 0.62)),
    },
    "2018.2/Keb-L_core_model16/model16_rf4_core.rpt": {
        "version": "2018.2",
        "part": "xcvu9p-flgb2104-2-i",
        "date": "2021-02-02T16:16:08",
        "modules": 14,
        "used": used(225438, 163333, 4962, 2473, 0),
        "available": VU9P,
        "timing": hls((3300, 3300), (801, 3201), (5.0, 4.366, 0.62)),
        "row": (
            "conv_2d_cl_array_array_ap_fixed_16u_config2_U0",
            used(18115, 8313, 400, 253),
            {"interval_cycles_min": 800},
        ),
        "cosim": {"latency_cycles_min": 2840, "latency_cycles_max": 5444, "interval_cycles_max": 2593},
    },
    "2018.2/Keb-L_phil_model8/model8_phil_csynth.rpt": {
        "used": used(125122, 77722, 2952, 1375, 0),
        "available": VU9P,
        "date": "2021-02-18T15:25:18",
        "timing": hls((638299, 640769), (2050, 640770), (5.0, 4.366, 0.62)),
    },
    # Exports, with logic synthesis and with implementation
    "2018.2/Keb-L_core_model16/myproject_export.rpt": {
        "stage": "synthesis",
        "version": "2018.2",
        "part": "xcvu9p-flgb2104-2-i",
        "date": "2021-02-24T13:15:48",
        "used": used(130031, 108200, 4962, 160, 0),
        "timing": {"clock_target_ns": 5.0, "clock_estimate_ns": 3.907},
    },
    "2018.2/Keb-L_phil_model8/myproject_export.rpt": {
        "stage": "implementation",
        "date": "2021-02-22T17:31:04",
        "notes": ("timing not met",),
        "used": used(40345, 39627, 2952, 20, 0),
        "timing": {"clock_target_ns": 5.0, "clock_estimate_ns": 5.037},
    },
    "2019.2.1/Keb-L_kernel_model4/myproject_export.rpt": {
        "stage": "synthesis",
        "version": "2019.2.1",
        "date": "2021-04-14T12:20:43",
        "notes": ("timing not met",),
        "used": used(58287, 33188, 195, 101, 0),
        "timing": {"clock_target_ns": 5.0, "clock_estimate_ns": 6.791},
    },
    # Timing
    "2018.2/Keb-L_core_model16/myproject_timing_synth.rpt": {
        "stage": "synthesis",
        "top": "myproject",
        "part": "xcvu9p-flgb2104-2-i",
        "timing": {"clock_target_ns": 5.0, "wns_ns": 1.093, "whs_ns": None, "tns_ns": None},
    },
    "2018.2/Keb-L_phil_model8/myproject_timing_synth.rpt": {
        "timing": {"clock_target_ns": 5.0, "wns_ns": 1.616},
        "date": "2021-02-22T16:21:02",
    },
    "2018.2/Keb-L_phil_model8/myproject_timing_routed.rpt": {
        "stage": "implementation",
        "date": "2021-02-22T17:30:32",
        "timing": {"clock_target_ns": 5.0, "wns_ns": -0.037, "tns_ns": -0.183, "whs_ns": 0.025},
    },
    "2019.2.1/Keb-L_kernel_model4/myproject_timing_synth.rpt": {
        "stage": "synthesis",
        "top": "bd_0_wrapper",
        "version": "2019.2.1",
        "timing": {"clock_target_ns": 5.0, "wns_ns": -1.791, "tns_ns": -3552.662, "whs_ns": 0.066},
    },
    "2019.2/hls4ml-pynq_jet_ap_fixed/design_1_wrapper_timing_summary_routed.rpt": {
        "stage": "implementation",
        "part": "xc7z020-clg400-1",
        "date": "2021-04-01T14:01:26",
        "timing": {"clock_target_ns": 10.0, "wns_ns": 0.226, "tns_ns": 0.0, "whs_ns": 0.016},
    },
    "2019.2/hls4ml-pynq_jet_float/design_1_wrapper_timing_summary_routed.rpt": {
        "timing": {"clock_target_ns": 10.0, "wns_ns": 0.549, "tns_ns": 0.0, "whs_ns": 0.021}
    },
    "2019.2/tutorial_jet_part7_pynqz2/design_1_wrapper_timing_summary_routed.rpt": {
        "top": "design_1_wrapper",
        "date": "2023-09-22T04:38:21",
        "timing": {"clock_target_ns": 10.0, "wns_ns": 0.385, "tns_ns": 0.0, "whs_ns": 0.015},
    },
    # Power
    "2022.1/generic_hls_div/design_1_wrapper_power_routed.rpt": {
        "stage": "implementation",
        "version": "2022.1",
        "part": "xc7z020-clg484-1",
        "date": "2023-10-23T11:53:02",
        "power": (1.707, 1.565, 0.142),
    },
    "2019.2/tutorial_jet_part7_pynqz2/design_1_wrapper_power_routed.rpt": {"power": (1.442, 1.306, 0.136)},
    "2019.2/hls4ml-pynq_jet_float/design_1_wrapper_power_routed.rpt": {"power": (1.543, 1.405, 0.138)},
    # Utilization
    "2018.2/Keb-L_core_model16/myproject_utilization_synth.rpt": {
        "stage": "synthesis",
        "top": "myproject",
        "part": "xcvu9p-flgb2104-2",
        "date": "2021-02-24T13:12:46",
        "used": {**vivado(130031, 114927, 15104, 108200, 5383, 80, 0, 160, 4962), "uram": 0},
        "available": {**VU9P, "lut_memory": 591840, "ramb36": 2160, "carry": 147780},
    },
    "2018.2/Keb-L_phil_model8/myproject_utilization_synth.rpt": {
        "used": {**vivado(41224, 37857, 3367, 38009, 3134, 10, 0, 20, 2952), "uram": 0}
    },
    "2019.2.1/Keb-L_kernel_model4/myproject_utilization_synth.rpt": {
        "used": {**vivado(58287, 54511, 3776, 33188, 5105, 50.5, 0, 101, 195), "uram": 0},
        "top": "bd_0_wrapper",
    },
    "2020.1/hls4ml_test_report/vivado_synth.rpt": {
        "stage": "synthesis",
        "version": "2020.1",
        "part": "xc7z020-clg400-1",
        "date": "2023-03-19T07:48:36",
        "used": {**vivado(1526, 1478, 48, 2428, 295, 0, 0, 0, 66), "uram": None},
        "available": {**PYNQ, "lut_memory": 17400, "ramb36": 140, "uram": None, "carry": None},
    },
    "2020.1/fastml-science_econ-t_pynqz2/vivado_synth.rpt": {
        "used": vivado(36023, 35744, 279, 29474, 10230, 0, 0, 0, 59),
        "date": "2024-02-21T17:55:20",
    },
    "2020.1/nac-opt_tutorial/vivado_synth.rpt": {
        "used": vivado(5755, 5730, 25, 6526, 1342, 1, 0, 2, 94),
        "notes": ("after opt_design",),
        "stage": "synthesis",
        "available": PYNQ,
    },
    "2020.1/tutorial_svhn_cnn/vivado_synth__v2.rpt": {
        "used": {**vivado(118931, 115875, 3056, 30702, 14273, 34, 0, 68, 353), "uram": 0},
        "part": "xcu250-figd2104-2L",
        "available": {**U250, "carry": 216000},
    },
    "2022.2/lfads_u50/vivado_synth.rpt": {
        "stage": "synthesis",
        "version": "2022.2",
        "part": "xcu50-fsvh2104-2L-e",
        "date": "2024-02-27T21:58:34",
        "used": {**vivado(179437, 166934, 12503, 227971, 13720, 251, 248, 6, 2058), "uram": 0},
        "available": {**U50, "lut_memory": 403200, "carry": 108960},
    },
    "2022.2/vitis_accel_u55c/ulp_kernel_wrapper_1_0_synth_1_ulp_kernel_wrapper_1_0_utilization_synth.rpt": {
        "top": "ulp_kernel_wrapper_1_0",
        "part": "xcu55c-fsvh2892-2L-e",
        "date": "2024-05-16T19:08:34",
        "used": {**vivado(19878, 19287, 591, 14630, 1790, 175.5, 170, 11, 25), "uram": 0},
        "available": U55C,
    },
    "2019.2/hls4ml-pynq_jet_ap_fixed/design_1_wrapper_utilization_placed.rpt": {
        "stage": "implementation",
        "top": "design_1_wrapper",
        "part": "xc7z020-clg400-1",
        "used": {**vivado(17654, 17379, 275, 18333, 1265, 5, 2, 6, 21), "uram": None},
    },
    "2019.2/tutorial_jet_part7_pynqz2/design_1_myproject_axi_0_0_utilization_synth.rpt": {
        "used": vivado(17267, 17184, 83, 17058, 4242, 2, 0, 4, 9),
        "date": "2023-09-22T04:34:04",
    },
    "2022.1/generic_hls_div/design_1_auto_pc_0_utilization_synth.rpt": {
        "used": {"lut": 421, "lut_logic": 356, "lut_memory": 65, "ff": 562, "bram18": 0},
    },
    "2022.1/generic_hls_div/design_1_division_hls_0_0_utilization_synth.rpt": {
        "used": vivado(784, 750, 34, 762, 194, 0, 0, 0, 0)
    },
    "2022.1/generic_hls_div/design_1_wrapper_utilization_placed.rpt": {
        "stage": "implementation",
        "part": "xc7z020-clg484-1",
        "date": "2023-10-23T11:52:19",
        "used": vivado(2601, 2301, 300, 3757, 249, 4, 4, 0, 0),
    },
    # Co-simulation
    "2020.1/fastml-science_econ-t_pynqz2/myproject_cosim.rpt": {
        "stage": "cosim",
        "tool": "xsim",
        "date": "2024-02-21T17:52:05",
        "part": None,
        "top": None,
        "timing": hls((None, None), (None, None), None),
    },
    # Vivado HLS 2018.3 to 2020.1
    "2018.3/nas-hls4ml_multistart0/csynth.xml": {
        "version": "2018.3",
        "part": "xc7z007s-clg225-1",
        "used": used(8349, 4852, 9, 124),
        "available": SMALL,
        "timing": hls((2521531, 7004283), (949549, 2917349), (5.0, 4.35, 0.62)),
    },
    "2018.3/nas-hls4ml_multistart0/dense_large_csynth.rpt": {
        "part": "xc7z007s-clg225-1",
        "date": "2021-03-02T23:01:32",
        "used": used(876, 518, 2, 2),
        "available": SMALL,
        "timing": hls((13064, 33224), (13064, 33224), (5.0, 4.231, 0.62)),
    },
    "2019.2/tutorial_jet_part1_u250/csynth.xml": {
        "tool": "Vivado HLS",
        "version": "2019.2",
        "part": "xcu250-figd2104-2L-e",
        "used": used(84942, 10961, 1450, 4, 0),
        "available": U250,
        "timing": hls((13, 13), (1, 1), (5.0, 4.357, 0.62), (65.0, 65.0)),
    },
    "2019.2/tutorial_jet_part1_u250/myproject_csynth.rpt": {
        "date": "2023-09-22T03:35:44",
        "used": used(84942, 10961, 1450, 4, 0),
        "available": U250,
        "available_slr": {"lut": 432000, "ff": 864000, "dsp": 3072, "bram18": 1344, "uram": 320},
        "timing": hls((13, 13), (1, 1), (5.0, 4.357, 0.62), (65.0, 65.0)),
    },
    "2019.2/hls4ml-pynq_jet_stream/csynth.xml": {
        "top": "myproject_axi",
        "used": used(44027, 14170, 21, 20, 0),
        "available": PYNQ,
        "timing": hls((172, 173), (173, 174), (10.0, 8.67, 1.25), (1720.0, 1730.0)),
    },
    "2019.2/hls4ml-pynq_jet_stream/dense_array_array_ap_fixed_16_6_5_3_0_32u_config8_s_csynth.rpt": {
        "used": used(4260, 2417, 0, 4, 0),
        "date": "2021-04-06T01:19:51",
        "timing": hls((67, 68), (67, 68), (10.0, 6.622, 1.25), (670.0, 680.0)),
    },
    "2019.2.1/Keb-L_kernel_model4/csynth.rpt": {
        "version": "2019.2.1",
        "used": used(87453, 43863, 195, 137, 0),
        "date": "2021-04-14T11:56:17",
        "available_slr": {"lut": 394080, "ff": 788160, "dsp": 2280, "bram18": 1440, "uram": 320},
        "timing": hls((1748, 1748), (1204, 1204), (5.0, 4.345, 0.62), (8740.0, 8740.0)),
        "cosim": {"latency_cycles_min": 2102, "latency_cycles_max": 3086, "interval_cycles_min": 476},
    },
    "2020.1/fastml-science_econ-t_pynqz2/csynth.xml": {
        "tool": "Vivado HLS",
        "used": used(59895, 34199, 132, 1, 0),
        "available": {**PYNQ, "uram": 0},
        "timing": hls((103, 103), (92, 92), (5.0, 5.019, 0.62), (517.0, 517.0)),
    },
    "2020.1/hls4ml_test_report/myproject_csynth.xml": {
        "used": used(2532, 7969, 73, 0, 0),
        "timing": hls((10, 10), (8, 8), (5.0, 4.049, 0.62), (50.0, 50.0)),
    },
    "2020.1/tutorial_svhn_cnn/myproject_csynth.rpt": {
        "used": used(245466, 52549, 5414, 100, 0),
        "available": U250,
        "date": "2021-06-28T13:48:42",
        "modules": 16,
        "timing": hls((1044, 1044), (1028, 1028), (5.0, 4.363, 0.62), (5220.0, 5220.0)),
        "row": (
            "conv_2d_cl_array_array_ap_fixed_24u_config12_U0",
            {"lut": 53724, "dsp": 1300},
            {"latency_ns_max": 200.0},
        ),
    },
    "2020.1/tutorial_svhn_cnn/myproject_csynth__v2.rpt": {
        "used": used(263280, 43847, 340, 100, 0),
        "timing": hls((1044, 1044), (1028, 1028), (5.0, 4.373, 0.62), (5220.0, 5220.0)),
    },
    # Vitis HLS
    "2020.1/nac-opt_tutorial/myproject_csynth.rpt": {
        "tool": "Vitis HLS",
        "version": "2020.1",
        "used": used(11935, 9052, 96, 2, 0),
        "date": "2025-04-01T10:52:09",
        "timing": hls((79, 79), (32, 32), (5.0, 7.289, 1.35), (576.0, 576.0)),
    },
    "2020.2/generic_gaussian/gaussian_csynth.rpt": {
        "part": "xczu7ev-ffvc1156-2-e",
        "used": used(1870, 973, 0, 3, 0),
        "available": ZU7EV,
        "modules": 1,
        "timing": hls((262673, 262673), (262674, 262674), (10.0, 6.427, 2.7), (2627000.0, 2627000.0)),
    },
    "2020.2/generic_gaussian/csynth.rpt": {
        "used": used(1870, 973, None, 3),
        "modules": 0,
        "available": {},
        "date": "2021-03-31T17:51:48",
        "timing": hls((262673, 262673), (262674, 262674), None, (2627000.0, 2627000.0)),
    },
    "2020.2/generic_gaussian/csynth__v2.xml": {
        "tool": "Vitis HLS",
        "used": used(1870, 976, 0, 3, 0),
        "available": ZU7EV,
        "modules": 0,
        "timing": hls((262673, 262673), (262674, 262674), (10.0, 6.427, 2.7), (2627000.0, 2627000.0)),
    },
    "2021.1/ArgyKokk_HAR_DSP_reuse1/myproject_csynth.rpt": {
        "tool": "Vitis HLS",
        "version": "2021.1",
        "part": "xc7z007s-clg225-2",
        "date": "2023-07-18T17:26:27",
        "used": used(237120, 246315, 413, 6, 0),
        "available": {**SMALL, "uram": 0},
        "modules": 8,
        "timing": hls((229, 229), (1, 1), (5.0, 4.362, 0.62), (1145.0, 1145.0)),
    },
    "2021.1/ArgyKokk_HAR_DSP_reuse1/csynth.rpt": {
        "used": used(237120, 246315, 413, 6),
        "modules": 8,
        "date": "2023-07-18T17:27:18",
        "timing": hls((229, 229), (1, 1), None, (1145.0, 1145.0)),
    },
    "2021.1/ArgyKokk_HAR_DSP_reuse1/csynth.xml": {
        "used": used(237120, 246315, 413, 6, 0),
        "modules": 8,
        "timing": hls((229, 229), (1, 1), (5.0, 4.362, 0.62), (1145.0, 1145.0)),
        "module": (
            "dense_latency_ap_fixed_8_2_5_3_0_ap_fixed_16_4_5_3_0_config2_s",
            used(168322, 190789, 33, 0, 0),
            {"latency_cycles_min": 192, "latency_ns_max": 960.0, "clock_estimate_ns": 4.354},
        ),
    },
    "2021.1/ArgyKokk_jet_tagging_DSP_reuse1/csynth.xml": {
        "used": used(72661, 85255, 814, 5, 0),
        "timing": hls((58, 58), (1, 1), (3.33, 3.236, 0.42), (193.0, 193.0)),
    },
    "2021.1/ArgyKokk_jet_tagging_LUT_reuse2/myproject_csynth.rpt": {
        "used": used(113294, 59259, 0, 5, 0),
        "timing": hls((45, 45), (2, 2), (3.33, 7.947, 0.42), (358.0, 358.0)),
    },
    "2022.1/generic_hls_div/csynth.rpt": {
        "used": used(81, 16, None, None),
        "part": "xc7z020-clg484-1",
        "date": "2023-10-23T11:05:08",
        "timing": hls((15, 15), (16, 16), None, (150.0, 150.0)),
    },
    "2022.1/generic_hls_div/csynth.xml": {
        "version": "2022.1",
        "used": used(81, 16, 0, 0, 0),
        "available": {**PYNQ, "uram": 0},
        "timing": hls((15, 15), (16, 16), (10.0, 6.075, 1.25), (150.0, 150.0)),
    },
    "2022.2/vitis_accel_u55c/csynth.rpt": {
        "version": "2022.2",
        "top": "kernel_wrapper",
        "used": used(52865, 19384, 34, 176),
        "modules": 16,
        "timing": hls((73905, 73905), (41035, 41035), None, (246300.0, 246300.0)),
        "module": (
            "softmax_stable_ap_fixed_ap_fixed_16_6_5_3_0_softmax_config13_s",
            used(453, 353, 5, 8),
            {"latency_ns_max": 26.664},
        ),
    },
    "2022.2/vitis_accel_u55c/kernel_wrapper_csynth.rpt": {
        "used": used(283948, 100985, 254, 52, 0),
        "available": U55C,
        "date": "2024-05-24T19:29:20",
        "available_slr": {"lut": 434560, "ff": 869120, "dsp": 3008, "bram18": 1344, "uram": 320},
        "timing": hls((41975940, 41975940), (41975941, 41975941), (3.33, 2.433, 0.9), (140000000.0, 140000000.0)),
    },
    "2023.2/generic_systolic/csynth.rpt": {
        "version": "2023.2",
        "top": "systolic_array",
        "used": used(9516, 6891, 10, 27),
        "modules": 2,
        "timing": hls((None, None), (None, None), None),
    },
    "2023.2/generic_systolic/csynth.xml": {
        "used": used(9516, 6891, 10, 27, 0),
        "available": VU11P,
        "modules": 2,
        "timing": hls((None, None), (None, None), (10.0, 7.674, 2.7)),
    },
    "2023.2/generic_systolic/systolic_array_Pipeline_VITIS_LOOP_23_1_csynth.rpt": {
        "used": used(44, 163, 0, 0, 0),
        "available": VU11P,
        "part": "xcvu11p-flga2577-1-e",
        "timing": hls((None, None), (None, None), (10.0, 2.0, 2.7)),
    },
    "2024.1/Lrozzy_jet_HGQ_3.1_3_u50/csynth.xml": {
        "version": "2024.1",
        "part": "xcu50-fsvh2104-2-e",
        "used": used(14507, 1630, 3, 0, 0),
        "available": U50,
        "timing": hls((8, 8), (1, 1), (5.0, 3.634, 1.35), (40.0, 40.0)),
    },
    "2024.1/Lrozzy_jet_HGQ_3.1_3_u50/csynth.rpt": {
        "used": used(14507, 1630, 3, None),
        "modules": 7,
        "date": "2025-02-26T01:35:07",
        "timing": hls((8, 8), (1, 1), None, (40.0, 40.0)),
    },
    "2024.1/Lrozzy_jet_HGQ_3.1_3_u50/myproject_csynth.rpt": {
        "used": used(14507, 1630, 3, 0, 0),
        "available": U50,
        "modules": 7,
        "available_slr": {"lut": 435840, "ff": 871680, "dsp": 2976, "bram18": 1344, "uram": 320},
        "timing": hls((8, 8), (1, 1), (5.0, 3.634, 1.35), (40.0, 40.0)),
    },
    "2024.1/Lrozzy_jet_HGQ_3.1_1_u50/myproject_csynth.rpt": {
        "used": used(88980, 9376, 60, 0, 0),
        "date": "2025-02-26T01:31:31",
        "timing": hls((10, 10), (1, 1), (5.0, 3.639, 1.35), (50.0, 50.0)),
    },
    "2024.1/Lrozzy_jet_HGQ_3.1_5_u50/dense_latency_ap_fixed_11_6_5_3_0_ap_fixed_9_7_5_3_0_config3_s_csynth.xml": {
        "used": used(618, 0, 0, 0, 0),
        "timing": hls((0, 0), (1, 1), (5.0, 3.05, 1.35), (0.0, 0.0)),
    },
    "2024.1/Lrozzy_jet_pruned60_u50/relu_ap_fixed_16_6_5_3_0_ap_fixed_16_6_5_3_0_relu_config10_s_csynth.rpt": {
        "used": used(912, 0, 0, 0, 0),
        "timing": hls((0, 0), (1, 1), (5.0, 1.078, 1.35), (0.0, 0.0)),
    },
}
