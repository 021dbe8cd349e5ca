"""Fields of other servers' APIs, whose names are no misspelling of one that Bushel has."""

from __future__ import annotations

_BY_SERVER = {
    "vLLM": """
        add_special_tokens best_of documents include_reasoning kv_transfer_params
        length_penalty logits_processors mm_processor_kwargs request_id
        return_tokens_as_token_ids spaces_between_special_tokens
        thinking_token_budget truncate_prompt_tokens use_beam_search vllm_xargs
    """,
    "SGLang": """
        bootstrap_host bootstrap_port bootstrap_room custom_logit_processor custom_params
        data_parallel_rank extra_key input_ids logprob_start_len lora_path no_stop_trim
        return_hidden_states return_logprob rid sampling_params separate_reasoning
        session_params stop_regex stream_reasoning token_ids_logprob top_logprobs_num
    """,
    "llama.cpp": """
        cache_prompt dynatemp_exponent id_slot image_data input_prefix input_suffix min_keep
        mirostat_eta mirostat_tau multimodal_data n_cmpl n_discard n_indent n_keep n_predict
        n_probs parse_tool_calls post_sampling_probs prompt_string reasoning_format
        response_fields return_progress return_tokens samplers t_max_predict_ms
        t_max_prompt_ms thinking_forced_open timings_per_token
    """,
    "mlx-lm and mlx-vlm": """
        adapter_path adapters draft_model num_draft_tokens resize_shape role_mapping
    """,
    "Ollama and LM Studio": """
        context context_overflow format images keep_alive options system template ttl
    """,
    "TGI": """
        adapter_id decoder_input_details details do_sample max_new_tokens return_full_text
        tool_prompt watermark
    """,
    "hosted ones": """
        api_base api_key citation_options custom_llm_provider debug disable_tool_validation
        drop_params enable_search exclude_domains fallbacks function_call functions guardrails
        image_config include_domains incremental_output max_tokens_to_sample mock_response
        models num_retries plugins prompt_mode provider random_seed result_format route
        safe_prompt search_settings session_id top_a trace transforms usage
    """,
}

OTHER_SERVERS_FIELDS = frozenset(name for names in _BY_SERVER.values() for name in names.split())
